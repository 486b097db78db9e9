"""Which sizes a program serves: its checks as code, verification by fake runs, merging of programs."""
