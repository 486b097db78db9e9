"""What compiled code is compared with: stock torch.compile, eager's behaviors, torch's database of operators."""
