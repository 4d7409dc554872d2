"""The rule of each claim: what it reads of which runs, and where that must lie. Thresholds are in claims.yaml, by name.

A rule says the same as the words beside its thresholds. docs/adding.md has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from benchmarks.claims.ledger import MORE, REFUTED, SUPPORTED
from benchmarks.claims.readings import Condition, Reader, Reading, Spans, every, some

# Whether a claim is supported, refuted and, where its rule knows that, more than claimed.
Ruling = dict[str, Condition]
Rule = Callable[[Reader], Ruling]
CORE, GPU = {"layout": "cpu-n1r1t1"}, {"layout": "gpu-n1r1t1"}
FOUR_GPUS, EIGHT_GPUS = {"layout": "ddp-n1r4t1"}, {"layout": "ddp-n1r8t1"}
# Two workers with a core each, by either backend.
TWO_WORKERS = ("ddp-cpu-n1r2t1", "mpi-n1r2t1")


def rule(claim: str) -> Rule:
    """The function of the claim with this id."""
    found: Rule = globals()[f"claim_{claim.replace('.', '_')}"]
    return found


def lower(readings: Iterable[Reading]) -> Ruling:
    """Supported if all are below the threshold `supported`, refuted if all are above `refuted`."""
    found = list(readings)
    return {
        SUPPORTED: every(x.below("supported") for x in found),
        REFUTED: every(x.above("refuted") for x in found),
    }


def higher(readings: Iterable[Reading]) -> Ruling:
    """Supported if all are above the threshold `supported`, refuted if all are below `refuted`."""
    found = list(readings)
    return {
        SUPPORTED: every(x.above("supported") for x in found),
        REFUTED: every(x.below("refuted") for x in found),
    }


def in_range(readings: Iterable[Reading]) -> Ruling:
    """Supported if all are in the range `claimed`, refuted if all are below it, more than claimed if all are above."""
    found = list(readings)
    return {
        SUPPORTED: every(x.within("claimed") for x in found),
        REFUTED: every(x.below("claimed") for x in found),
        MORE: every(x.above("claimed") for x in found),
    }


def claim_0_1(runs: Reader) -> Ruling:
    sizes = runs.of(model="hydra", batch=128).each("qubits")
    return lower(each.ratio("speedup", "step_s", GPU, FOUR_GPUS) for each in sizes)


def claim_0_2(runs: Reader) -> Ruling:
    six, eight = {"qubits": 6, **GPU}, {"qubits": 8, **FOUR_GPUS}
    return higher([runs.of(model="mamba", batch=128).ratio("slowdown", "step_s", eight, six)])


def _published(runs: Reader) -> Reader:
    """Runs of hydra with the simulator of the published code."""
    return runs.of(model="hydra", simulator="default.qubit")


def _weak(runs: Reader, name: str, quantity: str) -> list[Reading]:
    """Two workers over one, with 32 trials each."""
    hydra = _published(runs).of(qubits=6).on_own_cores()
    two, one = {"batch": 64}, {"batch": 32, **CORE}
    return [each.ratio(name, quantity, two, one) for each in hydra.each("layout", *TWO_WORKERS)]


def claim_0_3(runs: Reader) -> Ruling:
    return lower(_weak(runs, "throughput", "samples_per_s"))


def claim_0_4(runs: Reader) -> Ruling:
    return higher(_weak(runs, "slowdown", "step_s"))


def claim_0_6(runs: Reader) -> Ruling:
    sizes = runs.of(model="hydra", batch=128).each("qubits")
    groups = [each for size in sizes for each in size.each("layout", "ddp-n1r2t1", "ddp-n1r4t1")]
    shares = [each.value("share", Spans("communication", over="the step")) for each in groups]
    seconds = [each.value("seconds", Spans("communication")) for each in groups]
    long = [
        (share.at_least("share"), s.at_least("seconds")) for share, s in zip(shares, seconds, strict=True)
    ]
    short = [*(x.below("small_share") for x in shares), *(x.below("few_seconds") for x in seconds)]
    return {SUPPORTED: every(map(some, long)), REFUTED: every(short)}


def claim_0_7(runs: Reader) -> Ruling:
    simulators = runs.of(model="hydra", batch=32, **CORE).each("simulator", "fused", "default.qubit")
    six, eight, ten = ({"qubits": qubits} for qubits in (6, 8, 10))
    pairs = [(x.ratio("eight", "step_s", eight, six), x.ratio("ten", "step_s", ten, six)) for x in simulators]
    return {
        SUPPORTED: every(every((a.within("eight"), b.within("ten"))) for a, b in pairs),
        REFUTED: every(some((a.below("eight"), b.below("ten"))) for a, b in pairs),
        MORE: every(some((a.above("eight"), b.above("ten"))) for a, b in pairs),
    }


def claim_0_8(runs: Reader) -> Ruling:
    hydra = _published(runs).of(batch=32, **CORE)
    return in_range([hydra.ratio("three", "step_s", {"layers": 3}, {"layers": 1})])


def claim_0_9(runs: Reader) -> Ruling:
    gain = _published(runs).of(**CORE).ratio("gain", "epoch_s", {"batch": 32}, {"batch": 128})
    return {**in_range([gain]), REFUTED: gain.below("refuted")}


def claim_0_10(runs: Reader) -> Ruling:
    sizes = runs.of(model="hydra", batch=128).each("qubits")
    return higher(each.ratio("slowdown", "step_s", FOUR_GPUS, GPU) for each in sizes)


def claim_0_14(runs: Reader) -> Ruling:
    pairs = []
    for name in ("hydra", "mamba"):
        classical = runs.of(batch=128, model=f"classical_{name}", qubits=0)
        gain = classical.ratio(f"classical_{name}", "step_s", GPU, FOUR_GPUS)
        sizes = runs.of(batch=128, model=name).each("qubits")
        pairs += [(gain, each.ratio(name, "step_s", GPU, FOUR_GPUS)) for each in sizes]
    larger = [*(gain.above("supported") for gain, _ in pairs), *(gain.above(other) for gain, other in pairs)]
    return {SUPPORTED: every(larger), REFUTED: every(other.above(gain) for gain, other in pairs)}


def claim_0_17(runs: Reader) -> Ruling:
    found = _shared_tasks(runs)
    return {**lower(found), REFUTED: some(x.above("refuted") for x in found)}


def claim_0_19(runs: Reader) -> Ruling:
    hydra = runs.of(model="hydra", qubits=8, batch=128)
    return lower([hydra.ratio("speedup", "step_s", GPU, EIGHT_GPUS)])


def claim_0_21(runs: Reader) -> Ruling:
    four, one = {"batch": 128, **FOUR_GPUS}, {"batch": 32, **GPU}
    sizes = runs.of(model="hydra").each("qubits")
    return lower(each.ratio("throughput", "samples_per_s", four, one) for each in sizes)


def claim_1_1(runs: Reader) -> Ruling:
    vqc, strategies = runs.of(model="vqc", batch=64), ("fused", "default.qubit", "default.qubit-loop-shift")
    found = [each.ratio("slowdown", "step_s", GPU, CORE) for each in vqc.each("simulator", *strategies)]
    return {**in_range(found), REFUTED: some(x.below("refuted") for x in found)}


def claim_1_2(runs: Reader) -> Ruling:
    strategies = runs.of(model="vqc", batch=64, **GPU).each("simulator")
    leads = [each.value("over_next", Spans("transfer", over="the largest other")) for each in strategies]
    shares = [each.value("share", Spans("transfer", over="the step")) for each in strategies]
    return {
        SUPPORTED: every(x.above("supported") for x in leads),
        REFUTED: every(x.below("refuted") for x in shares),
    }


def claim_1_4(runs: Reader) -> Ruling:
    loop, lightning = {"simulator": "default.qubit-loop-shift"}, {"simulator": "lightning.qubit"}
    return in_range([runs.of(model="vqc", batch=64).ratio("speedup", "step_s", loop, lightning)])


def claim_1_6(runs: Reader) -> Ruling:
    vqc, three, one = runs.of(model="vqc", batch=64), {"layers": 3}, {"layers": 1}
    speedup = vqc.of(simulator="default.qubit-loop-shift").ratio("speedup", "step_s", three, one)
    lost = vqc.of(protocol="quality").difference("accuracy", three, one)
    return {
        SUPPORTED: every((speedup.within("speedup"), lost.within("accuracy"))),
        REFUTED: some((speedup.below("speedup"), lost.below("accuracy"))),
        MORE: some((speedup.above("speedup"), lost.above("accuracy"))),
    }


def claim_1_7(runs: Reader) -> Ruling:
    vqc = runs.of(model="vqc", simulator="default.qubit-loop-shift", batch=64)
    inline, cached = {"protocol": "timing-inline"}, {"protocol": "timing"}
    speedup, apart = vqc.ratio("speedup", "step_s", inline, cached), vqc.losses("apart", inline, cached)
    return {
        SUPPORTED: every((speedup.within("claimed"), apart.at_most("losses"))),
        REFUTED: some((speedup.below("claimed"), apart.above("losses"))),
        MORE: every((speedup.above("claimed"), apart.at_most("losses"))),
    }


def claim_1_9(runs: Reader) -> Ruling:
    vqc = runs.of(model="vqc", simulator="default.qubit", batch=64, **GPU)
    seconds = vqc.value("circuit", Spans("circuit.forward", "circuit.backward"))
    # Less time is more than claimed.
    return {**in_range([seconds]), REFUTED: seconds.above("claimed"), MORE: seconds.below("claimed")}


def claim_1_10(runs: Reader) -> Ruling:
    vqc = runs.of(model="vqc", simulator="default.qubit")
    full, mixed = {"protocol": "strategies"}, {"protocol": "mixed"}
    gains = [vqc.ratio(quantity, quantity, full, mixed) for quantity in ("step_s", "peak_device_bytes")]
    return {**higher(gains), SUPPORTED: some(x.above("supported") for x in gains)}


def claim_1_11(runs: Reader) -> Ruling:
    vqc, cores = runs.of(model="vqc", simulator="default.qubit"), {"layout": "cpu-n1r1t16"}
    sizes = {"small": (4, 64), "qubits": (12, 64), "batch": (4, 512)}
    small, *large = (
        vqc.of(qubits=qubits, batch=batch).ratio(name, "step_s", GPU, cores)
        for name, (qubits, batch) in sizes.items()
    )
    return {
        SUPPORTED: every((small.above("equal"), *(x.below("equal") for x in large))),
        REFUTED: some((small.below("equal"), *(x.above("equal") for x in large))),
    }


def claim_1_12(runs: Reader) -> Ruling:
    loop = runs.of(model="vqc", batch=64, simulator="default.qubit-loop-shift")
    share = Spans("circuit.forward", "circuit.backward", over="the step")
    return in_range([loop.value("share", share)])


def _eight_gpus(runs: Reader) -> list[Reading]:
    sizes = runs.of(model="cosine_pulse", simulator="matched").each("qubits", 6, 8, 10, 12)
    return [each.ratio("speedup", "step_s", GPU, EIGHT_GPUS) for each in sizes]


def claim_2_1(runs: Reader) -> Ruling:
    speedups = _eight_gpus(runs)
    return {**lower(speedups), REFUTED: speedups[-1].above("refuted")}


def claim_2_3(runs: Reader) -> Ruling:
    pulse = runs.of(model="cosine_pulse", simulator="published-5000", qubits=6).on_own_cores()
    speedups = [each.ratio("speedup", "step_s", CORE, {}) for each in pulse.each("layout", *TWO_WORKERS)]
    return {**lower(speedups), REFUTED: some(x.above("refuted") for x in speedups)}


def claim_2_4(runs: Reader) -> Ruling:
    pulse = runs.of(model="cosine_pulse", simulator="published-5000", qubits=6)
    share = Spans("pulses.gates", over="the step")
    return higher(each.value("share", share) for each in pulse.each("layout", *TWO_WORKERS))


def claim_2_5(runs: Reader) -> Ruling:
    share = Spans("pulses.eigenstates", "transfer", over="the step")
    return higher([runs.of(model="cosine-device", qubits=6, **CORE).value("share", share)])


def claim_2_6(runs: Reader) -> Ruling:
    layouts, span = runs.of(model="cosine-device").each("layout", *TWO_WORKERS), Spans("pulses.hamiltonian")
    return higher(each.ratio("ratio", span, {}, CORE) for each in layouts)


def claim_2_8(runs: Reader) -> Ruling:
    speedups = _eight_gpus(runs)
    return {**higher(speedups), SUPPORTED: some(x.above("supported") for x in speedups)}


def claim_2_10(runs: Reader) -> Ruling:
    pulse = runs.of(model="cosine_pulse", simulator="published-5000", qubits=6)
    share = Spans("communication", over="the step")
    return higher(each.value("share", share) for each in pulse.each("layout", *TWO_WORKERS))


def _sentences(runs: Reader, **wanted: int | str) -> Reader:
    """Runs of the transformer whose ranks have a core each."""
    return runs.of(model="superposition_transformer", **wanted).on_own_cores()


def _shared_tasks(runs: Reader) -> list[Reading]:
    """For each simulator, how much faster two ranks are that share the evaluations of one sentence's gradient."""
    simulators = _sentences(runs, batch=1, protocol="tasks").each("simulator")
    return [x.ratio("speedup", "step_s", CORE, {"layout": "mpi-n1r2t1"}) for x in simulators]


def claim_3_1(runs: Reader) -> Ruling:
    literal = _sentences(runs, simulator="literal-bound")
    ranks = literal.each("layout", "mpi-n1r2t1", "mpi-n1r4t1", "mpi-n1r8t1")
    found = [each.efficiency("efficiency", "step_s", CORE, {}) for each in ranks]
    return {**in_range(found), REFUTED: found[0].below("claimed")}


def claim_3_3(runs: Reader) -> Ruling:
    sentence = runs.of(model="superposition_transformer", batch=1)
    rebuilt, bound = {"simulator": "literal"}, {"simulator": "literal-bound"}
    return higher([sentence.ratio("without building", "step_s", bound, rebuilt)])


def claim_3_4(runs: Reader) -> Ruling:
    literal = _sentences(runs, simulator="literal-bound", layout="mpi-n1r2t1")
    return higher([literal.value("share", Spans("communication", over="the step"))])


def claim_3_5(runs: Reader) -> Ruling:
    sentences, shift = runs.of(model="superposition_transformer", batch=8), {"simulator": "closed-form-shift"}
    others = sentences.each("simulator", "closed-form", "fused")
    apart = [each.losses("apart", {}, shift) for each in others]
    ratios = [each.ratio("ratio", "step_s", {}, shift) for each in others]
    agreeing = [(x.at_most("losses"), y.below("shorter")) for x, y in zip(apart, ratios, strict=True)]
    return {SUPPORTED: every(x.above("losses") for x in apart), REFUTED: some(map(every, agreeing))}


def claim_3_7(runs: Reader) -> Ruling:
    return in_range(_shared_tasks(runs))


def claim_3_11(runs: Reader) -> Ruling:
    simulators = _sentences(runs, batch=8).each("simulator", "literal-bound", "closed-form-shift", "fused")
    found = [x.ratio("speedup", "step_s", CORE, {"layout": "cpu-n1r1t2"}) for x in simulators]
    return {**higher(found), SUPPORTED: found[0].above("supported")}


def claim_3_12(runs: Reader) -> Ruling:
    sentences = runs.of(model="superposition_transformer", batch=8, protocol="sentences")
    simulators = sentences.each("simulator", "closed-form-shift", "fused")
    layouts = [each for one in simulators for each in one.each("layout", *TWO_WORKERS)]
    return lower(each.ratio("memory", "peak_rss_bytes", {}, CORE) for each in layouts)


def claim_4_1(runs: Reader) -> Ruling:
    integrators = {"rk4": "literal", "euler": "literal-euler-0.02"}
    found = [
        runs.of(model="policy-5", batch=2).ratio(
            name, "step_s", {"simulator": each}, {"simulator": f"{each}-cached"}
        )
        for name, each in integrators.items()
    ]
    return {**higher(found), SUPPORTED: some(x.above("supported") for x in found)}


def claim_4_3(runs: Reader) -> Ruling:
    one_by_one, at_once = {"simulator": "literal"}, {"simulator": "rk4-0.01-torch"}
    return in_range([runs.of(model="policy-1", batch=16).ratio("speedup", "step_s", one_by_one, at_once)])


def claim_4_4(runs: Reader) -> Ruling:
    neither = {"model": "policy-loop", "simulator": "literal"}
    both = {"model": "policy", "simulator": "literal-cached"}
    return higher([runs.of(batch=2).ratio("together", "step_s", neither, both)])


def claim_4_5(runs: Reader) -> Ruling:
    pulses = runs.of(model="robust_grape", batch=200)
    steps = pulses.each(
        "simulator", *(f"rk4-{dt}" for dt in ("0.05", "0.025", "0.01", "0.005", "0.002", "0.001"))
    )
    good, physical, beaten = [], [], []
    for name in ("euler-0.01", "euler-0.025"):
        euler = {"simulator": name}
        negativity = pulses.of(**euler).value(f"negativity of {name}", "test_negativity")
        # The factor is that of RK4 over Euler.
        errors = [each.ratio(f"error over {name}", "test_simulator_error", {}, euler) for each in steps]
        times = [each.ratio(f"time over {name}", "step_s", {}, euler) for each in steps]
        pairs = list(zip(errors, times, strict=True))
        worse = [some((error.above("equal"), time.above("equal"))) for error, time in pairs]
        better = [every((error.below("equal"), time.at_most("equal"))) for error, time in pairs]
        good.append(every((negativity.at_most("physical"), *worse)))
        physical.append(negativity.above("physical"))
        beaten.append(some(better))
    return {SUPPORTED: some(good), REFUTED: some((every(physical), every(beaten)))}


def claim_4_6(runs: Reader) -> Ruling:
    batches = runs.of(model="robust_grape", simulator="exact").each("batch")
    sides = {"one_core": CORE, "all_cores": {"layout": "cpu-n1r1t16"}}
    found = [[each.ratio(name, "step_s", side, GPU) for each in batches] for name, side in sides.items()]
    return {
        SUPPORTED: some(every(x.below("equal") for x in ratios) for ratios in found),
        REFUTED: every(ratios[-1].above("equal") for ratios in found),
    }


def claim_4_8(runs: Reader) -> Ruling:
    loop = runs.of(model="policy-1", simulator="literal-euler-0.02")
    # The time of a task over that of one among 16.
    one, *more = (
        each.ratio("task", "samples_per_s", {"batch": 16}, {}) for each in loop.each("batch", 1, 64, 128)
    )
    return {
        SUPPORTED: every(x.above("supported") for x in more),
        REFUTED: every(x.within("refuted") for x in (one, more[-1])),
    }


def claim_4_9(runs: Reader) -> Ruling:
    coarse, exact = {"simulator": "euler-0.025"}, {"simulator": "exact"}
    pulses = runs.of(model="robust_grape")
    return lower([pulses.ratio("infidelity", "test_exact_infidelity", coarse, exact)])


def claim_4_10(runs: Reader) -> Ruling:
    one, ten = (
        {"model": "policy-1", "protocol": "two-losses"},
        {"model": "policy", "protocol": "eleven-losses"},
    )
    ratios = [
        each.ratio("infidelity", "test_infidelity", one, ten)
        for each in runs.each("workload", "narrow", "detuned")
    ]
    return {
        SUPPORTED: every(x.below("equal") for x in ratios),
        REFUTED: some(x.above("equal") for x in ratios),
    }


def claim_4_11(runs: Reader) -> Ruling:
    many, few = {"batch": 256}, {"batch": 16}
    found = [
        each.ratio("throughput", "samples_per_s", many, few)
        for each in runs.of(model="robust_grape").each("simulator", "exact", "exact-torch")
    ]
    return {**lower(found), REFUTED: some(x.above("refuted") for x in found)}
