"""Time: how long stages take, and what is printed when."""
import math
import time


class Clock:
    """Time spent in a stage, over several runs if need be."""
    stop_at = math.inf  # when this process must end, for all stages

    def __init__(self, seconds, used=0.0):
        self.seconds, self.used, self.start = seconds, used, time.time()

    def spent(self):
        return self.used + time.time() - self.start

    def fraction(self):
        return self.spent() / self.seconds

    def out_of_time(self):
        return time.time() > Clock.stop_at


class Stopped(Exception):
    """The process ran out of time in the middle of a stage whose state is saved."""


T0 = time.time()


def say(*words):
    print(f"[{time.time() - T0:6.1f}s]", *words, flush=True)


def ramp(fraction, step, warmup=200, hold=0.5):
    """Learning rate factor: warm up, hold, then straight down to zero at the end of the stage."""
    return min(1.0, (step + 1) / warmup) * min(1.0, max(0.0, (1 - fraction) / (1 - hold)))
