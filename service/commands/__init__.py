"""The commands of `turnwise`, one module each. They import torch only when they need it."""
