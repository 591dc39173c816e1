"""What a config or a GGUF header says about the layers: pure arithmetic from decoded fields to `facts.model.Shape`; it opens nothing."""
