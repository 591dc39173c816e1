"""The solver on llama.cpp's own prices: random shapes, budgets and settings; what it answers fits when it is priced again, and the next step does not."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brim import api
from brim.engines.llama_cpp import price
from brim.engines.llama_cpp.reserve import forget
from brim.facts.workload import LlamaWorkload
from brim.gate import FITS, judge
from brim.knobs import CACHE_TYPES, context, experts, layers, quantisation
from brim.lineup import hypothetical, specs
from brim.units import MIB
from tests.cli.test_fit_and_solve import shape


def model_of(tmp_path_factory, layer_count: int, architecture: str):
    """A small model read from its shape file."""
    path = tmp_path_factory.mktemp("shapes") / f"{architecture}-{layer_count}.json"
    path.write_text(json.dumps(shape(architecture, layer_count)))
    return api.read(str(path))


CASES = st.fixed_dictionaries(
    {
        "layer_count": st.integers(1, 6), "architecture": st.sampled_from(("llama", "qwen3")), "budget": st.integers(16, 260), "ubatch": st.sampled_from((64, 256, 512)),
        "slots": st.integers(1, 6), "ctk": st.sampled_from(("f16", "q8_0")), "unified": st.booleans(),
    }
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(CASES)
def test_the_largest_context_fits_and_the_next_does_not(tmp_path_factory, case: dict) -> None:
    """Any small model, budget, micro-batch, slots and cache type on the host."""
    model = model_of(tmp_path_factory, case["layer_count"], case["architecture"])
    device = hypothetical("cpu", 0, case["budget"] * MIB, reserve=0.0)
    asked = LlamaWorkload(slots=case["slots"], ubatch=case["ubatch"], ctk=case["ctk"], ctv=case["ctk"], flash_attn="on", kv_unified=case["unified"])
    found = api.solve(model, ["ctx"], asked, devices=[device])
    workload = found.answer.trial.workload
    again = price(model, workload, specs([device]))
    assert again == found.answer.plan
    assert found.answer.fits == (judge(again, (device,)).verdict == FITS)
    values = list(context(model, workload).values)
    at = values.index(workload.ctx)
    if found.answer.fits and at + 1 < len(values):
        assert judge(price(model, workload.replace(ctx=values[at + 1]), specs([device])), (device,)).verdict != FITS
    if not found.answer.fits:
        assert judge(price(model, workload.replace(ctx=256), specs([device])), (device,)).verdict != FITS


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(st.integers(2, 8), st.integers(790, 1100), st.integers(256, 8192))
def test_the_most_layers_fit_beside_an_enforced_host(tmp_path_factory, layer_count: int, card: int, ctx: int) -> None:
    """One more layer on the card does not fit, whatever the card and the context."""
    model = model_of(tmp_path_factory, layer_count, "llama")
    devices = (hypothetical("cuda", 0, card * MIB, reserve=0.0), hypothetical("cpu", 0, 4096 * MIB, reserve=0.0))
    found = api.solve(model, ["layers"], LlamaWorkload(ctx=ctx, slots=1), devices=devices)
    count = found.answer.trial.workload.gpu_layers
    assert found.answer.fits
    if count <= layer_count:
        more = price(model, found.answer.trial.workload.replace(gpu_layers=count + 1), specs(devices))
        assert judge(more, devices).verdict != FITS


def test_knobs_go_from_least_to_most_wanted(tmp_path_factory) -> None:
    """Contexts, cache types and quantisations rise; experts on the host fall; the user's own value is marked."""
    model = model_of(tmp_path_factory, 3, "llama")
    contexts = list(context(model, LlamaWorkload(ctx=4096, slots=1)).values)
    assert contexts == sorted(contexts)
    assert contexts[-1] == 32768
    assert context(model, LlamaWorkload(slots=4, kv_unified=False)).values[-1] == 4 * 32768
    assert CACHE_TYPES[-1] == "f16"
    quants = quantisation(model)
    assert quants.values.index("Q8_0") > quants.values.index("Q4_K_M") > quants.values.index("IQ2_XXS")
    assert list(experts(model, LlamaWorkload()).values) == [3, 2, 1, 0]
    assert layers(model, LlamaWorkload(gpu_layers=2)).now == 2


def test_a_price_says_the_same_whatever_was_asked_before(tmp_path_factory) -> None:
    """The plan from a recorded walk is the plan of a fresh one, its arithmetic in words included."""
    for architecture in ("llama", "gemma3"):
        model = model_of(tmp_path_factory, 4, architecture)
        for device in (hypothetical("cpu", 0, 64 * MIB, reserve=0.0), hypothetical("cuda", 0, 64 * MIB, reserve=0.0)):
            asked = [LlamaWorkload(ctx=ctx, slots=1, ubatch=256, flash_attn="on") for ctx in (256, 1024, 4096, 16384, 512, 70144)]
            forget()
            after_others = [price(model, one, specs([device])) for one in asked]
            for one, plan in zip(asked, after_others, strict=True):
                forget()
                assert price(model, one, specs([device])) == plan
