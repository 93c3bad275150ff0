"""Marks that a picture is synthetic, in the picture itself: EXIF and XMP, in IPTC's vocabulary.

The same statement is what a C2PA claim would hold (`c2pa.created` with this digital source type); signing one needs a
certificate, which is the publisher's.
"""

from __future__ import annotations

import io
from xml.sax.saxutils import quoteattr

from PIL import Image

from repair_ray import __version__

# IPTC NewsCodes: a picture with parts that a trained model made.
SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/compositeWithTrainedAlgorithmicMedia"
# Made by rules, without a trained model.
RULES_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/algorithmicMedia"
EXIF_SOFTWARE = 0x0131
EXIF_DESCRIPTION = 0x010E

_XMP = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/"
 xmlns:xmp="http://ns.adobe.com/xap/1.0/"
 Iptc4xmpExt:DigitalSourceType={source} xmp:CreatorTool={tool} Iptc4xmpExt:AISystemUsed={model}
 Iptc4xmpExt:AIPromptInformation={prompt}/>
</rdf:RDF></x:xmpmeta>
<?xpacket end="w"?>"""


def synthetic_jpeg(image: Image.Image, *, editor: str, model: str, seed: int, instruction: str) -> bytes:
    """Encode a picture as JPEG that says what made it: tool, model, seed and instruction."""
    tool = f"repair_ray {__version__} ({editor})"
    exif = Image.Exif()
    exif[EXIF_SOFTWARE] = tool
    exif[EXIF_DESCRIPTION] = "synthetic: edited by a trained model"
    values = {"source": SOURCE_TYPE, "tool": tool, "model": model, "prompt": f"seed {seed}: {_printable(instruction)}"}
    xmp = _XMP.format(**{name: quoteattr(value) for name, value in values.items()})
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95, subsampling=0, exif=exif, xmp=xmp.encode())
    return buffer.getvalue()


def _printable(text: str) -> str:
    # XML 1.0 allows no control characters, not even escaped.
    return "".join(letter if letter.isprintable() else " " for letter in text)
