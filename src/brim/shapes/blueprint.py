"""The sheet on which a family draws a model: weights and layers in the order of the published checkpoint; it only adds up.

A family function writes with `linear`, `norm`, `table` and `vector`; `Blueprint` remembers the layer and the tower that each row belongs to.
"""

from brim.errors import BadHeader
from brim.facts.model import Layer, Tower, Weight

# No model has nearly as many (DeepSeek v3 has 46 000 tensors, Kimi K2 70 000): a small file must not make brim draw millions of rows.
MAX_ROWS = 1 << 16
MAX_TENSORS = 1 << 18


class Blueprint:
    """Weights and layers as they are drawn; `layer` and `tower` are stamped on every weight that is added while they stand."""

    __slots__ = (
        "audio",
        "context",
        "draft_layers",
        "encoder_layers",
        "encoder_width",
        "layer",
        "layers",
        "root",
        "source",
        "tensors",
        "tied",
        "tower",
        "unusual",
        "vision",
        "vocabulary",
        "weights",
        "width",
    )

    def __init__(self, source: str = "config.json") -> None:
        self.source, self.tensors = source, 0
        self.weights: list[Weight] = []
        self.layers: list[Layer] = []
        self.encoder_layers: list[Layer] = []
        self.unusual: list[str] = []
        self.layer: int | None = None
        self.tower = "text"
        self.root = ""
        self.vocabulary = self.width = self.encoder_width = self.draft_layers = 0
        self.context: int | None = None
        self.tied = False
        self.vision: Tower | None = None
        self.audio: Tower | None = None

    def add(self, name: str, dims: tuple[int, ...], role: str, op: str, copies: int = 1, used: int | None = None) -> None:
        """One row. `dims` in ggml's order; of `copies` alike tensors a token passes `used` (all where None)."""
        each = 1
        for size in dims:
            each *= size
        self.tensors += copies
        if self.tensors > MAX_TENSORS or len(self.weights) >= MAX_ROWS:
            raise BadHeader(f"{self.source}: num_hidden_layers and the counts of heads and experts imply more than {MAX_TENSORS} tensors, which no model has")
        self.weights.append(
            Weight(
                name=self.root + name,
                dims=dims,
                role=role,
                op=op,
                layer=self.layer,
                elements=each * copies,
                active=each * (copies if used is None else used),
                copies=copies,
                tower=self.tower,
            )
        )

    def linear(self, name: str, role: str, inputs: int, outputs: int, *, bias: bool = False, copies: int = 1, used: int | None = None) -> None:
        """A matrix `name.weight` from `inputs` to `outputs`, and `name.bias` where there is one."""
        self.add(name + ".weight", (inputs, outputs), role, "linear", copies, used)
        if bias:
            self.add(name + ".bias", (outputs,), role, "bias", copies, used)

    def norm(self, name: str, width: int, style: str = "rms") -> None:
        """A normalisation. `style`: rms or bare (weight only), layer (weight and bias), none (no parameters at all)."""
        if style == "none":
            return
        self.add(name + ".weight", (width,), "norm", "norm")
        if style == "layer":
            self.add(name + ".bias", (width,), "norm", "norm")

    def table(self, name: str, rows: int, width: int, role: str = "embedding") -> None:
        """A table `name.weight` of `rows` vectors."""
        self.add(name + ".weight", (width, rows), role, "embedding")

    def vector(self, name: str, role: str, *dims: int, op: str = "vector") -> None:
        """A bare parameter called exactly `name`."""
        self.add(name, dims, role, op)

    def conv(self, name: str, role: str, *dims: int, bias: int = 0) -> None:
        """A convolution `name.weight` and, where `bias` is its length, `name.bias`."""
        self.add(name + ".weight", dims, role, "conv")
        if bias:
            self.add(name + ".bias", (bias,), role, "bias")

    def draw(self, layer: Layer) -> None:
        """The layer that was just written."""
        self.layers.append(layer)

    def elements(self, *towers: str) -> int:
        """Logical elements of some towers, of all where none is named."""
        return sum(row.elements for row in self.weights if not towers or row.tower in towers)
