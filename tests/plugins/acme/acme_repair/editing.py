"""An image editor that turns a picture round: no repair, but a picture that anyone can check."""

import io

from PIL import ImageOps
from pydantic import BaseModel, Field

from repair_ray.engines.editors import EditError


class Mirror:
    class Settings(BaseModel, extra="forbid"):
        quality: int = Field(90, ge=1, le=100)

    def __init__(self, settings, read, device):
        self.quality, self.read = settings.quality, read

    def edit(self, image: bytes, instruction: str, seed: int) -> bytes:
        if not instruction:
            raise EditError("nothing to do")
        out = io.BytesIO()
        ImageOps.mirror(self.read(image)).save(out, "JPEG", quality=self.quality)
        return out.getvalue()
