"""Finds the largest workload that fits, by asking an engine again and again with trial values; it changes nothing it was given."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def largest(fits: "Callable[[int], bool]", *, most: int, step: int) -> int:
    """The largest multiple of `step`, at most `most`, for which `fits` is true; 0 where none is.

    `fits` need not be monotone (a compute buffer may shrink as the context grows): the answer always fits, and the next step after it
    either does not fit or is above `most`.
    """
    low, high = 0, most // step
    if high < 1:
        return 0
    if fits(high * step):
        return high * step
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * step):
            low = middle
        else:
            high = middle
    return low * step
