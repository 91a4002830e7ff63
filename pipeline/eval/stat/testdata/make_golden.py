"""Makes golden.json: what scipy and statsmodels say of numbers that stat_test.go computes too.

    pip install scipy==1.17.1 statsmodels==0.15.0
    python make_golden.py > golden.json
"""

import json
import sys

import numpy as np
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.power import NormalIndPower
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import ttost_paired

rng = np.random.default_rng(5)


def proportions():
    for n in (1, 2, 7, 20, 164, 820, 16400):
        for passed in sorted({0, 1, n // 3, n // 2, n - 1, n}):
            for level in (0.9, 0.95, 0.99):
                w = proportion_confint(passed, n, alpha=1 - level, method="wilson")
                c = proportion_confint(passed, n, alpha=1 - level, method="beta")
                yield {"passed": passed, "n": n, "level": level, "wilson": list(map(float, w)), "clopper": list(map(float, c))}


def disagreements():
    for b, c in [(0, 0), (0, 1), (1, 0), (3, 3), (2, 9), (9, 2), (0, 12), (40, 25), (120, 90), (7, 300)]:
        p = 1.0 if b + c == 0 else float(mcnemar([[10, b], [c, 20]], exact=True).pvalue)
        yield {"only_x": b, "only_y": c, "p": min(p, 1.0)}


def pairs():
    for n, samples, bias in [(7, 3, 0.1), (8, 2, 0), (9, 4, 0.2), (12, 3, -0.1), (16, 1, 0.4), (40, 5, 0), (164, 5, 0.02), (164, 1, -0.1), (300, 20, 0)]:
        chance = rng.beta(0.6, 0.6, n)
        x = rng.binomial(samples, np.clip(chance + bias, 0, 1)) / samples
        y = rng.binomial(samples, chance) / samples
        d = x - y
        if d.std() == 0:
            continue
        case = {"x": x.tolist(), "y": y.tolist(), "tost": [], "detectable": [], "quantiles": []}
        for margin in (0.02, 0.05, 0.2):
            p, low, high = ttost_paired(x, y, -margin, margin)
            case["tost"].append({"margin": margin, "p": float(p)})
        se = d.std(ddof=1) / np.sqrt(n)
        case["interval90"] = [float(v) for v in stats.t.interval(0.9, n - 1, loc=d.mean(), scale=se)]
        for level, power in ((0.95, 0.8), (0.95, 0.9), (0.99, 0.8)):
            # One sample of differences: ratio 0. Two-sided power leaves out the far tail as we do from effects of some size on.
            effect = (stats.norm.ppf(1 - (1 - level) / 2) + stats.norm.ppf(power)) / np.sqrt(n)
            check = NormalIndPower(ddof=0).power(effect, n, 1 - level, ratio=0, alternative="two-sided")
            assert abs(check - power) < 1e-3, check
            case["detectable"].append({"level": level, "power": power, "difference": float(effect * d.std(ddof=1))})
        if np.count_nonzero(d) <= 16:
            t = stats.permutation_test((x, y), lambda a, b, axis=-1: np.mean(a - b, axis=axis), permutation_type="samples", vectorized=True, n_resamples=np.inf)
            case["permutation"] = float(t.pvalue)
        s = np.sort(d)
        for p in (0.0, 0.025, 0.3, 0.5, 0.975, 1.0):
            case["quantiles"].append([p, float(np.quantile(s, p))])
        yield case


json.dump({"proportions": list(proportions()), "disagreements": list(disagreements()), "pairs": list(pairs())}, sys.stdout, indent=1)
print()
