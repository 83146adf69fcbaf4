// Pictures as the canvas draws them.

// Larger ones are shown from a smaller copy.
const kMostShownPixels = 16e6;

// {bitmap, width, height}: the sides are those of the picture. Rejected when the browser cannot read it.
export const boundedBitmap = async (blob) => {
    const whole = await createImageBitmap(blob);
    const {width, height} = whole;
    const scale = Math.sqrt(kMostShownPixels / (width * height));
    if (scale >= 1) {
        return {bitmap: whole, width, height};
    }
    const bitmap = await createImageBitmap(whole, {
        resizeWidth: Math.round(width * scale),
        resizeHeight: Math.round(height * scale),
        resizeQuality: 'medium',
    });
    whole.close();
    return {bitmap, width, height};
};
