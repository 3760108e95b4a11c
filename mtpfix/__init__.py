"""mtpfix finds and repairs quantized LLM checkpoints whose config files lie about the weights."""

__version__ = "0.1.0"
