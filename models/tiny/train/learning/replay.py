"""Training steps recorded as CUDA graphs."""
import torch


class Replay:
    """A function of tensors, recorded as a CUDA graph: small kernels then cost the host nothing.

    Recordings with the same pool share their memory, so an output lasts only until the next replay of any of them.
    """

    record = True  # otherwise the function is simply called

    def __init__(self, pool, function, *inputs):
        self.function = function
        if not Replay.record:
            return
        self.inputs = [x.clone() for x in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.output = function(*self.inputs)

    def __call__(self, *inputs):
        if not Replay.record:
            return self.function(*inputs)
        for mine, new in zip(self.inputs, inputs):
            mine.copy_(new)
        self.graph.replay()
        return self.output
