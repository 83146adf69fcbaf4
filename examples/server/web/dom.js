// Small helpers for elements, texts in the document, and the live region.

import {t} from './texts.js';

export const $ = (id) => document.getElementById(id);

// el('button', {class: 'primary', type: 'button', onclick: f, 'aria-label': 'x'}, 'text', child)
export function el(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (value === null || value === undefined || value === false) {
            continue;
        }
        if (name.startsWith('on')) {
            element.addEventListener(name.slice(2), value);
        } else if (name === 'value' || name === 'checked' || name === 'disabled') {
            element[name] = value;
        } else {
            element.setAttribute(name, value === true ? '' : value);
        }
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
}

// Icons are symbols of the document, so that they take the colour of the text around them.
export function icon(name) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('class', 'icon');
    svg.setAttribute('aria-hidden', 'true');
    const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
    use.setAttribute('href', `#icon-${name}`);
    svg.append(use);
    return svg;
}

// A button that shows only an icon.
export function iconButton(name, label, onclick, properties = {}) {
    return el('button', {class: 'icon-button', type: 'button', 'aria-label': label, title: label, onclick, ...properties},
        icon(name));
}

// Puts texts into elements with data-t (content), data-t-label, data-t-title, data-t-hint (placeholder).
export function fillTexts(root) {
    const attributes = {'data-t-label': 'aria-label', 'data-t-title': 'title', 'data-t-hint': 'placeholder'};
    for (const element of root.querySelectorAll('[data-t]')) {
        element.append(t(element.dataset.t));
    }
    for (const [from, to] of Object.entries(attributes)) {
        for (const element of root.querySelectorAll(`[${from}]`)) {
            element.setAttribute(to, t(element.getAttribute(from)));
        }
    }
}

// Tells a screen reader; nothing is seen.
export function announce(text) {
    const region = $('live');
    region.textContent = '';
    requestAnimationFrame(() => {
        region.textContent = text;
    });
}

// Waits until nothing was called for `ms`.
export function debounced(ms, action) {
    let timer = 0;
    return (...values) => {
        clearTimeout(timer);
        timer = setTimeout(() => action(...values), ms);
    };
}
