"""Sheets of samples."""
from PIL import Image, ImageDraw

from pixels import to_image


def save_sheet(path, pictures, texts, columns):
    """Pictures in rows, each with its words underneath."""
    h, w = pictures[0].shape[1:]
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (w + 6) + 6, rows * (h + 50) + 6), "white")
    pen = ImageDraw.Draw(sheet)
    for i, (picture, text) in enumerate(zip(pictures, texts)):
        x, y = 6 + i % columns * (w + 6), 6 + i // columns * (h + 50)
        sheet.paste(to_image(picture), (x, y))
        lines, line = [], ""
        for word in text.split():
            if len(line) + len(word) > w // 6.2:
                lines.append(line)
                line = ""
            line += word + " "
        pen.multiline_text((x, y + h + 2), "\n".join(lines + [line]), fill="black", spacing=1)
    sheet.save(path)
