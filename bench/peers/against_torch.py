"""What hooks gave, against torch on the same bytes: programs save their inputs and outputs, and this computes the outputs once more.

rows --save DIR && against_torch.py DIR     `patterns` and `bench_hooks` as well; --self-test: altered outputs must be refused

An output must be what its type's rounding makes of a number within a slack of torch's:

- Sums over ranks are in the order that hooks declare, so they are the same bits; so is what is only cast, as the next residual is.
- Casts to e4m3 and bfloat16 are torch's own. An output differs from torch's only where the number before a cast is within the slack of the boundary
  between two: an e4m3 value by one step, a sum of such values by what that makes of it. Those that differ are counted.
- QUANTISED, of a scale and of what is divided by it: hooks have most * (1 / 448) and x * (1 / scale), torch most / 448 and x / scale. Each rounds.
- FAST, of a normed row: its sum has another order, rsqrt.approx is off by 2^-22.9, products round. Twice that of exponentials.
- TANH, of the argument of GELU: tanh.approx is off by 2^-11. CPU threads have the exact function, but the same slack.
"""
import json
import sys
from pathlib import Path

import torch
from torch.nn.functional import gelu, silu, softmax

QUANTISED, FAST, TANH = 2.0**-21, 2.0**-20, 2.0**-12
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Near:
    """Torch's numbers, and the least and the greatest that may stand in their places."""

    def __init__(self, x, least, greatest):
        self.x, self.least, self.greatest = x, least, greatest

    def each(self, f):
        """By a function that does not fall."""
        return Near(f(self.x), f(self.least), f(self.greatest))

    def to(self, dtype):
        return self.each(lambda x: x.to(dtype))

    def __add__(self, other):
        return Near(self.x + other.x, self.least + other.least, self.greatest + other.greatest)

    def scaled(self, x, by):
        """`x`, which is this by factors above zero."""
        return Near(x, torch.minimum(self.least * by.least, self.least * by.greatest), torch.maximum(self.greatest * by.least, self.greatest * by.greatest))


def near(x, slack=0.0):
    return Near(x, x - slack, x + slack)


def folded(parts):
    """The tree of `order = tree`: split behind the largest power of two that is less."""
    left = 1 << (len(parts) - 1).bit_length() - 1 if len(parts) > 1 else 0
    return folded(parts[:left]) + folded(parts[left:]) if left else parts[0]


def quantised(x, group=128):
    """Values and scales."""
    shape, x = x.x.shape, x.each(lambda x: x.reshape(-1, group))
    magnitude = Near(x.x.abs(), torch.maximum(x.least, -x.greatest).clamp(min=0), torch.maximum(-x.least, x.greatest))
    scales = magnitude.each(lambda x: (x.amax(1, keepdim=True) / 448.0).clamp(min=torch.finfo(torch.float32).tiny))
    scales = Near(scales.x, scales.least * (1 - QUANTISED), scales.greatest * (1 + QUANTISED))
    # The greatest element of a group is 448, whichever it is: torch makes NaN of what is above.
    values = x.scaled(x.x / scales.x, Near(None, 1 / scales.greatest, 1 / scales.least)).each(lambda x: x.clamp(-448, 448)).to(E4M3)
    return values.each(lambda x: x.reshape(shape)), scales.each(lambda x: x.reshape(shape[0], -1))


def dequantised(values, scales):
    scales = scales.each(lambda x: x.repeat_interleave(values.x.shape[1] // x.shape[1], 1))
    return values.to(torch.float32).scaled(values.x.float() * scales.x, scales)


def normed(x, gamma):
    # The sum of squares in float64, so that the error of its order is the hooks' alone.
    y = x * torch.rsqrt(x.double().square().mean(1, keepdim=True) + 1e-6).float() * gamma
    return near(y, y.abs() * FAST)


def activated(x):
    return near(gelu(x, approximate="tanh"), x.abs() * (TANH + FAST)).to(BF16)


def by_powers(y):
    return {"output": near(y, y.abs() * 2 * FAST).to(BF16)}


def summed(all, own):
    """The sum of all ranks, and a residual."""
    return folded([a["input"] for a in all]) + own["residual"]


def all_to_all(arrived):
    arrived = [dequantised(*quantised(near(x))).to(BF16) for x in arrived]
    return {"output": Near(*(torch.cat([getattr(part, of) for part in arrived]) for of in ("x", "least", "greatest")))}


def named(values, scales):
    return {"output": values, "scales": scales}


# The outputs of each case, of all ranks' arrays in float32, a rank's own, and the chunks that all ranks have for this one.
CASES = {
    "quantised": lambda all, own, chunks: all_to_all(chunks),
    "summed": lambda all, own, chunks: {"output": folded([dequantised(*quantised(near(a["input"]))) for a in all]).to(BF16)},
    "normed": lambda all, own, chunks: named(*quantised(normed(summed(all, own), own["gamma"]), own["gamma"].numel())),
    "per_tensor": lambda all, own, chunks: {
        "next": near(summed(all, own)).to(BF16), "output": normed(summed(all, own), own["gamma"]).each(lambda y: (y * 8).clamp(-448, 448)).to(E4M3)},
    "per_group": lambda all, own, chunks: {"next": near(summed(all, own)).to(BF16), **named(*quantised(normed(summed(all, own), own["gamma"])))},
    "activated": lambda all, own, chunks: {"output": activated(folded(chunks) + own["bias"])},
    "both_ways": lambda all, own, chunks: {
        "output": dequantised(*quantised(folded([dequantised(*quantised(near(a["input"]))) for a in all]))).to(BF16)},
    "gathered": lambda all, own, chunks: {
        "output": near(torch.cat([dequantised(near(a["input"]), near(a["scales"])).x for a in all])).to(BF16)},
    "averaged": lambda all, own, chunks: {"output": near(folded([a["input"] for a in all]) / len(all)).to(BF16)},
    "GELU": lambda all, own, chunks: {"output": activated(own["input"])},
    "SiLU": lambda all, own, chunks: by_powers(silu(own["input"])),
    "softmax": lambda all, own, chunks: by_powers(softmax(own["input"], 1)),
    "RMSNorm": lambda all, own, chunks: {"output": normed(own["input"], own["gamma"]).to(BF16)},
}


def loaded(folder):
    """The arrays of each case, by rank."""
    cases, rank, ranks = {}, 0, 1
    while rank < ranks:
        for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines():
            entry = json.loads(line)
            ranks = entry["ranks"]
            raw = torch.frombuffer(bytearray((folder / entry["file"]).read_bytes()), dtype=torch.uint8)
            array = raw.view(getattr(torch, entry["dtype"])).reshape(entry["shape"]).to(DEVICE)
            cases.setdefault(entry["case"], {}).setdefault(rank, {})[entry["name"]] = array
        rank += 1
    return cases


def difference(got, want):
    """In steps of e4m3 or of a float32; of a bfloat16, which may be near zero where its parts are not, as a number."""
    if got.dtype == BF16:
        return (got.float() - want.float()).abs()

    def place(x):
        bits = x.contiguous().view(torch.uint8 if x.dtype == E4M3 else torch.int32).long()
        magnitude = bits & (1 << 8 * x.element_size() - 1) - 1
        return torch.where(bits != magnitude, -magnitude, magnitude)
    return (place(got) - place(want)).abs()


def refused(want, got):
    """The first element that is outside, if any is."""
    if (got.shape, got.dtype) != (want.x.shape, want.x.dtype):
        return f"{list(want.x.shape)} of {want.x.dtype} are expected, {list(got.shape)} of {got.dtype} found"
    outside = ~((want.least.float() <= got.float()) & (got.float() <= want.greatest.float()))
    if not outside.any():
        return None
    row, column = outside.nonzero()[0].tolist()
    x, least, greatest, got = (float(a[row, column].float()) for a in (want.x, want.least, want.greatest, got))
    return f"row {row}, column {column}: {x:.9g} is expected (from {least:.9g} to {greatest:.9g}), {got:.9g} found; {int(outside.sum())} are outside"


def altered(want, got):
    """An element by a step, or a scale by 2^-18 of it; two rows that are swapped, or two parts of one."""
    one, fixed = got.clone(), want.least.float() == want.greatest.float()
    place = (got.float().abs() * (fixed if fixed.any() else 1)).argmax()
    flat = one.view(-1) if one.dtype == torch.float32 else one.view(-1).view(torch.uint8 if one.element_size() == 1 else torch.int16)
    flat[place] = flat[place] * (1 - 2.0**-18) if one.dtype == torch.float32 else flat[place] - 1
    yield one
    if got.numel() > 1:
        units = got.clone() if got.shape[0] > 1 else got.reshape(-1, min(128, got.shape[1] // 2)).clone()
        yield units[[1, 0, *range(2, units.shape[0])]].reshape(got.shape)


def main():
    folder, refusals, passed = Path(sys.argv[-1]), 0, 0
    if not (folder / "rank-0.jsonl").exists():
        sys.exit(f"{folder}: no rank has saved anything here; run `rows`, `patterns` or `bench_hooks` with --save {folder}")
    for case, ranks in loaded(folder).items():
        told, all = {}, [{name: x.float() for name, x in ranks[rank].items()} for rank in sorted(ranks)]
        for rank, own in ranks.items():
            chunks = [a["input"].tensor_split(len(all))[rank] for a in all]
            for name, want in CASES[case](all, all[rank], chunks).items():
                got = own[name]
                why = refused(want, got)
                if why:
                    sys.exit(f"{case}, rank {rank}, {name}: {why}")
                off, unit = difference(got, want.x), "" if got.dtype == BF16 else " steps"
                count, n, most, _ = told.get(name, (0, 0, 0, unit))
                told[name] = count + int((off > 0).sum()), n + got.numel(), max(most, off.max().item()), unit
                if "--self-test" in sys.argv:
                    verdicts = [refused(want, other) for other in altered(want, got)]
                    refusals, passed = refusals + sum(map(bool, verdicts)), passed + sum(not why for why in verdicts)
        said = (f"{name}: {count} of {n} differ, by {most:.3g}{unit} at most" for name, (count, n, most, unit) in told.items())
        print(f"{case}, {len(all)} ranks, {DEVICE}: " + "; ".join(said), flush=True)
    if "--self-test" in sys.argv:
        print(f"self-test: {refusals} altered outputs were refused, {passed} were not")
    sys.exit(passed != 0)


main()
