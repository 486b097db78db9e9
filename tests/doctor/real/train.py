"""A training script: batches padded to their longest row, a last batch that is not full, an evaluation after each epoch."""

import torch

torch.manual_seed(0)


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.mix = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, tokens, mask):
        hidden = torch.relu(self.mix(self.embed(tokens))) * mask.unsqueeze(-1)
        return self.head(hidden.sum(1) / mask.sum(1, keepdim=True))


model = Classifier()
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
lengths = torch.randint(3, 60, (57,)).tolist()


def batches(size):
    for start in range(0, len(lengths), size):
        some = lengths[start : start + size]
        tokens = torch.randint(0, 50, (len(some), max(some)))
        mask = (torch.arange(max(some)) < torch.tensor(some).unsqueeze(1)).float()
        yield tokens, mask, torch.zeros(len(some), dtype=torch.long)


for epoch in range(2):
    for tokens, mask, labels in batches(8):
        loss = torch.nn.functional.cross_entropy(compiled(tokens, mask), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: {loss.item():.4f}")
