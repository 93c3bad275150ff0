"""A term that pushes the pictures of a batch apart: the mean squared cosine of two of them."""

from pydantic import BaseModel

from repair_ray.training.gather import gather_features


class Spread:
    class Settings(BaseModel, extra="forbid"):
        power: int = 2

    def __init__(self, settings, known, seed):
        self.power = settings.power

    def __call__(self, encoded):
        images = gather_features(encoded.images.float())
        return (images @ images.T).fill_diagonal_(0).abs().pow(self.power).mean()
