"""Wrong formulas in copies of the modules are refused, each with words that say what differs; right ones are not."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from changed_copies import Change

from mathdoc.check import Report
from mathdoc.problem import Problem

Checked = Callable[[Sequence[Change]], Report]
pytestmark = pytest.mark.slow


class Planted(NamedTuple):
    """A formula, a wrong one in its place, and what the refusal must say."""

    name: str
    module: str
    right: str
    wrong: str
    says: str


MOMENTS = r"v'_j = \frac{c v_j + n \bar{v}_j + \frac{c n}{c'} \Delta_j^2}{c'}"
POLICY = r"\mathcal{L}_\pi = -\frac{1}{B} \sum_b \sum_i \psi_{b,i} \log\pi(a_{b,i}|s_b)"
DUAL = r"\mathcal{L}_\eta = \eta (\epsilon_\eta + \frac{1}{B} \sum_b \log \sum_i \exp(Q_{b,i} / \eta) - \log N)"
LIKELIHOOD = "    # LaTeX: \\mathcal{L}_\\pi^{NLL} = -\\sum_t \\psi_t \\log\\pi_\\theta(a_t|s_t)\n"
CLIPPED = r"V_{old}(s_t) + \operatorname{clip}(V_\theta(s_t) - V_{old}(s_t), -\epsilon_{clip}, \epsilon_{clip})"
SWAPPED = r"V_\theta(s_t) + \operatorname{clip}(V_{old}(s_t) - V_\theta(s_t), -\epsilon_{clip}, \epsilon_{clip})"
BOOTSTRAP = "    # LaTeX: y = R + \\Gamma (1 - e) V(s')\n"
CLOSEST = "    closest = 0.0625 * torch.finfo(actions.dtype).eps * (high - low)\n"
UNSQUASHED = "    # LaTeX: u_j = \\frac{1}{2} (\\log\\max(a_j - a_j^{low}, c_j) - \\log\\max(a_j^{high} - a_j, c_j))\n"

WRONG = [
    Planted(
        "a sign",
        "formulas.returns",
        r"A_t = \delta_t + \gamma \lambda (1 - d_t) A_{t+1}",
        r"A_t = \delta_t - \gamma \lambda (1 - d_t) A_{t+1}",
        "it would hold with the other sign at `",
    ),
    Planted(
        "the entropy's sign",
        "trainers.ppo.improve",
        r"\mathcal{L}_{pg} - c_H \mathcal{H}",
        r"\mathcal{L}_{pg} + c_H \mathcal{H}",
        "it would hold with the other sign at `",
    ),
    Planted(
        "a missing mask at a termination",
        "formulas.returns",
        r"\delta_t = r_t + \gamma (1 - e_t) V(s_{t+1}) - V(s_t)",
        r"\delta_t = r_t + \gamma V(s_{t+1}) - V(s_t)",
        "a factor `1 - e_t`",
    ),
    Planted(
        "a missing set",
        "trainers.vmpo.losses",
        r"D = \mathbb{E}_{t \in S}[D_t]",
        r"D = \mathbb{E}_t[D_t]",
        r"`t \in S`",
    ),
    Planted(
        "a wrong index of a sum",
        "trainers.mpo.losses",
        r"\frac{\exp(Q_{b,i} / \eta)}{\sum_k \exp(Q_{b,k} / \eta)}",
        r"\frac{\exp(Q_{b,i} / \eta)}{\sum_k \exp(Q_{k,i} / \eta)}",
        "it would hold",
    ),
    Planted(
        "a wrong shift",
        "formulas.categorical",
        "f_{b,k} = F_{b,k+1} - F_{b,k}",
        "f_{b,k} = F_{b,k} - F_{b,k+1}",
        "the other sign",
    ),
    Planted(
        "a biased standard deviation for an unbiased one",
        "formulas.returns",
        r"\sqrt{\frac{1}{n - c} \sum_t (A_t - \bar{A})^2}",
        r"\sqrt{\frac{1}{n} \sum_t (A_t - \bar{A})^2}",
        "relative difference",
    ),
    Planted(
        "a missing epsilon_0 of 1e-8",
        "formulas.lagrange",
        r"\eta = \operatorname{softplus}(\tilde\eta) + \varepsilon_0",
        r"\eta = \operatorname{softplus}(\tilde\eta)",
        r"`+ \varepsilon_0`",
    ),
    Planted(
        "a missing stop-gradient",
        "formulas.trust_region",
        r"P_j = \operatorname{sg}(\alpha_j) D_j",
        r"P_j = \alpha_j D_j",
        r"their gradients in `\alpha_j` differ",
    ),
    Planted(
        "a stop-gradient that is not there",
        "trainers.vmpo.losses",
        LIKELIHOOD,
        LIKELIHOOD.replace(r"\log\pi_\theta(a_t|s_t)", r"\operatorname{sg}(\log\pi_\theta(a_t|s_t))"),
        r"their gradients in `\log\pi_\theta(a_t|s_t)` differ",
    ),
    Planted("a swapped term", "trainers.ppo.losses", CLIPPED, SWAPPED, "the formula gives"),
    Planted(
        "a missing square",
        "formulas.gaussian",
        r"\frac{(\mu_j - \mu'_j)^2}{2 {\sigma'_j}^2}",
        r"\frac{(\mu_j - \mu'_j)}{2 {\sigma'_j}^2}",
        "a square",
    ),
    Planted(
        "a variance where a standard deviation belongs",
        "formulas.gaussian",
        r"a_j = \mu_j + \sigma_j \xi_j",
        r"a_j = \mu_j + \sigma_j^2 \xi_j",
        "an exponent dropped",
    ),
    Planted(
        "a missing half",
        "formulas.returns",
        r"\frac{1}{2} \mathbb{E}_t[(V(s_t) - G_t)^2]",
        r"\mathbb{E}_t[(V(s_t) - G_t)^2]",
        "a factor 1/2",
    ),
    Planted(
        "a mean of other numbers, over a set",
        "trainers.vmpo.losses",
        r"\bar{x} = \mathbb{E}_{t \in S}[x_t]",
        r"\bar{x} = \mathbb{E}_{t \in S}[\exp(\exp(x_t))]",
        "the formula gives",
    ),
    Planted(
        "a sum for a mean",
        "trainers.mpo.losses",
        POLICY,
        POLICY.replace(r"\frac{1}{B} ", ""),
        "a mean for the sum over b",
    ),
    Planted("a missing log N", "trainers.mpo.losses", DUAL, DUAL.replace(r" - \log N", ""), "the formula gives"),
    Planted(
        "a minimum for a maximum",
        "trainers.ppo.losses",
        r"\mathbb{E}_t[\max(\mathcal{L}_t^{(1)}, \mathcal{L}_t^{(2)})]",
        r"\mathbb{E}_t[\min(\mathcal{L}_t^{(1)}, \mathcal{L}_t^{(2)})]",
        "max and min exchanged",
    ),
    Planted(
        "a clip range around zero",
        "trainers.ppo.losses",
        r"\operatorname{clip}(\rho_t, 1 - \epsilon_{clip}, 1 + \epsilon_{clip})",
        r"\operatorname{clip}(\rho_t, -\epsilon_{clip}, \epsilon_{clip})",
        "the formula gives",
    ),
    Planted(
        "another small constant",
        "formulas.optimizers",
        r"\frac{\hat{m}_k}{\sqrt{\hat{v}_k} + 10^{-5}}",
        r"\frac{\hat{m}_k}{\sqrt{\hat{v}_k} + 10^{-8}}",
        "the formula gives",
    ),
    Planted(
        "a missing root", "trainers.vmpo.agent", r"\frac{\beta_\alpha}{\sqrt{M}}", r"\frac{\beta_\alpha}{M}", "root"
    ),
    Planted(
        "a missing exponent",
        "formulas.returns",
        r"R = \sum_t \gamma^t m_t r_t",
        r"R = \sum_t \gamma m_t r_t",
        "the formula gives",
    ),
    Planted(
        "a term that is lost", "formulas.statistics", MOMENTS, r"v'_j = \frac{c v_j + n \bar{v}_j}{c'}", "the formula"
    ),
    Planted(
        "an index left free",
        "trainers.mpo.losses",
        r"C_{b,i} = -\sqrt{\sum_j \operatorname{sg}(x_{b,i,j})^2}",
        r"C_{b,i} = -\sqrt{\operatorname{sg}(x_{b,i,j})^2}",
        "the index j is left free",
    ),
    Planted(
        "a symbol nobody defined",
        "trainers.mpo.agent",
        r"\beta = \frac{\beta_\pi}{M}",
        r"\beta = \frac{\beta_\pi}{M_\pi}",
        "`M_\\pi` is not defined",
    ),
    Planted(
        "a formula moved one line down",
        "formulas.returns",
        BOOTSTRAP + "    target = rewards + discount * (1 - terminated) * next_values\n",
        "    target = rewards + discount * (1 - terminated) * next_values\n" + BOOTSTRAP,
        "this line computes nothing",
    ),
    Planted(
        "a formula moved one line up",
        "formulas.gaussian",
        CLOSEST + UNSQUASHED,
        UNSQUASHED + CLOSEST,
        "`c_j` stands for what this line assigns",
    ),
    Planted(
        "the formula of another line",
        "trainers.ppo.losses",
        r"\mathcal{L}_t^{(1)} = -\hat{A}_t \rho_t",
        r"\mathcal{L}_t^{(1)} = -\hat{A}_t \operatorname{clip}(\rho_t, 1 - \epsilon_{clip}, 1)",
        "it would hold with clip dropped",
    ),
]

RIGHT = [
    (
        "formulas.returns",
        r"\delta_t + \gamma \lambda (1 - d_t) A_{t+1}",
        r"(1 - d_t) A_{t+1} \lambda \gamma + \delta_t",
    ),
    (
        "formulas.returns",
        r"\delta_t = r_t + \gamma (1 - e_t) V(s_{t+1}) - V(s_t)",
        r"\delta_t = r_t - V(s_t) + \gamma V(s_{t+1}) - \gamma e_t V(s_{t+1})",
    ),
    ("formulas.returns", r"c_t = \lambda \min(1, \rho_t)", r"c_t = \min(\lambda, \lambda \rho_t)"),
    (
        "formulas.returns",
        r"\sqrt{\frac{1}{n - c} \sum_t (A_t - \bar{A})^2}",
        r"\sqrt{\frac{\sum_t (\bar{A} - A_t)^2}{n - c}}",
    ),
    (
        "formulas.gaussian",
        r"-\sum_j (\frac{1}{2} z_j^2 + \log\sigma_j + \frac{1}{2} \log(2 \pi))",
        r"-\frac{1}{2} \sum_j (z_j^2 + 2 \log\sigma_j + \log(2 \pi))",
    ),
    ("formulas.gaussian", r"\frac{1}{2} (\exp(-2 \ell_j) - 1 + 2 \ell_j)", r"\frac{\exp(-2 \ell_j) - 1}{2} + \ell_j"),
    ("formulas.statistics", r"\mu_j + \frac{n}{c'} \Delta_j", r"\frac{c' \mu_j + n \Delta_j}{c'}"),
    (
        "trainers.mpo.losses",
        r"\psi_{b,i} = \frac{\exp(Q_{b,i} / \eta)}{\sum_k \exp(Q_{b,k} / \eta)}",
        r"\psi_{b,i} = \frac{1}{\sum_k \exp((Q_{b,k} - Q_{b,i}) / \eta)}",
    ),
    (
        "trainers.ppo.losses",
        r"\mathbb{E}_t[\max(\mathcal{L}_t^{(1)}, \mathcal{L}_t^{(2)})]",
        r"-\mathbb{E}_t[\min(-\mathcal{L}_t^{(1)}, -\mathcal{L}_t^{(2)})]",
    ),
    (
        "formulas.returns",
        r"\frac{1}{2} \mathbb{E}_t[(V(s_t) - G_t)^2]",
        r"\mathbb{E}_t[\frac{(G_t - V(s_t))^2}{2}]",
    ),
    (
        "formulas.optimizers",
        r"\theta'_k - \beta \frac{\hat{m}_k}{\sqrt{\hat{v}_k} + 10^{-5}}",
        r"\theta'_k - \frac{\beta \hat{m}_k}{10^{-5} + \sqrt{\hat{v}_k}}",
    ),
]


@pytest.fixture(scope="module")
def refusals(checked_with: Checked) -> list[Problem]:
    return checked_with([Change(case.module, case.right, case.wrong) for case in WRONG]).problems


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_formula_is_refused_and_the_difference_is_said(case: Planted, refusals: list[Problem]) -> None:
    wrong = next(line for line in case.wrong.splitlines() if "LaTeX" in line or "\n" not in case.wrong)
    said = [str(problem) for problem in refusals if wrong.strip() in str(problem)]
    assert said
    assert any(case.says in message for message in said), said


def test_nothing_but_what_was_planted_is_refused(refusals: list[Problem]) -> None:
    planted = {line.strip() for case in WRONG for line in case.wrong.splitlines()}
    elsewhere = [str(p) for p in refusals if p.path.suffix == ".py" and not any(line in str(p) for line in planted)]
    assert elsewhere == []


def test_right_formulas_in_another_form_are_accepted(checked_with: Checked) -> None:
    report = checked_with([Change(*case) for case in RIGHT])
    assert [str(problem) for problem in report.problems] == []
    written = {verdict.formula.marker.tex: verdict.status for verdict in report.verdicts}
    forms = [next(status for tex, status in written.items() if new in tex) for _, _, new in RIGHT]
    assert forms == ["verified"] * len(RIGHT)
