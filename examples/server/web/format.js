// Numbers for people.

import {t} from './texts.js';

export function timeText(seconds) {
    if (seconds < 1) {
        return t('time.now');
    }
    if (seconds < 90) {
        return t('time.seconds', {n: Math.round(seconds)});
    }
    return seconds < 5400 ? t('time.minutes', {n: Math.round(seconds / 60)}) : t('time.hours', {n: Math.round(seconds / 360) / 10});
}

// "3.4 GB", of the same unit as `like` when that is given: "0.4" of "8 GB" is said in GB.
export function bytesText(bytes, like = bytes) {
    const isLarge = like >= 1e9;
    const value = bytes / (isLarge ? 1e9 : 1e6);
    return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${isLarge ? 'GB' : 'MB'}`;
}

// The time in the id of a picture: its first 12 digits are milliseconds.
export function timeOfId(id) {
    return new Date(parseInt(id.slice(0, 12), 16)).toLocaleString();
}
