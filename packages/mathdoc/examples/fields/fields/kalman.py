"""A Kalman filter for N independent signals, each a number that drifts and is measured with noise."""

import numpy as np

DECAY = 0.9


class KalmanFilter:
    """What is believed about each signal: its mean and its variance."""

    def __init__(self, mean: np.ndarray, variance: np.ndarray, drift: float, noise: float) -> None:
        self.mean = mean
        self.variance = variance
        self.drift = drift
        self.noise = noise

    def predict(self) -> None:
        """One step of time: the signals decay, and the beliefs become less certain."""
        # LaTeX: \hat{x}'_n = \phi \hat{x}_n
        self.mean = DECAY * self.mean
        # LaTeX: P'_n = \phi^2 P_n + q
        self.variance = DECAY**2 * self.variance + self.drift

    def update(self, measured: np.ndarray) -> float:
        """A measurement of every signal. Returns its negative log-likelihood."""
        # LaTeX: y_n = z_n - \hat{x}_n
        innovation = measured - self.mean
        # LaTeX: S_n = P_n + r
        spread = self.variance + self.noise
        # LaTeX: K_n = \frac{P_n}{S_n}
        gain = self.variance / spread
        # LaTeX: \hat{x}'_n = \hat{x}_n + K_n y_n
        self.mean = self.mean + gain * innovation
        # LaTeX: P'_n = (1 - K_n) P_n
        self.variance = (1 - gain) * self.variance
        # LaTeX: \mathcal{L} = \frac{1}{2} \sum_n (\log(2 \pi S_n) + \frac{y_n^2}{S_n})
        loss = 0.5 * np.sum(np.log(2 * np.pi * spread) + innovation**2 / spread)
        return float(loss)
