// Line drawings on a grid of 24 x 24.
const kPaths = {
    brush: 'M20 4 10.5 13.5M9 13c-2.5 0-4 1.8-4 4 0 1.4-.8 2.4-2 3 5 .8 9-.6 9-4.2A2.8 2.8 0 0 0 9 13z',
    eraser: 'm4 15 9.5-9.5a2 2 0 0 1 2.8 0l3.2 3.2a2 2 0 0 1 0 2.8L11 20H8l-4-4a.7.7 0 0 1 0-1zM9 10l6 6M11 20h9',
    rectangle: 'M4 6h16v12H4z',
    lasso: 'M12 5c4.4 0 8 2.2 8 5s-3.6 5-8 5-8-2.2-8-5 3.6-5 8-5zM8 14.5c-1.6 1.5-.5 3.5 1 2.8s1 3-1 3.7',
    move: 'M12 3v18M3 12h18M9 6l3-3 3 3M9 18l3 3 3-3M6 9l-3 3 3 3M18 9l3 3-3 3',
    undo: 'M8 5 4 9l4 4M4 9h10a5.5 5.5 0 0 1 0 11H9',
    redo: 'm16 5 4 4-4 4M20 9H10a5.5 5.5 0 0 0 0 11h5',
    invert: 'M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16',
    clear: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5',
    zoomIn: 'M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 21 21M7.5 10.5h6M10.5 7.5v6',
    zoomOut: 'M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 21 21M7.5 10.5h6',
    fit: 'M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5',
    close: 'M6 6l12 12M18 6 6 18',
};
const kFilled = {invert: 'M12 4a8 8 0 1 0 0 16z'};

const kSvg = 'http://www.w3.org/2000/svg';

export const icon = (name) => {
    const svg = document.createElementNS(kSvg, 'svg');
    svg.setAttribute('viewBox', '0 0 24 24');
    svg.setAttribute('aria-hidden', 'true');
    svg.classList.add('icon');
    const add = (path, style) => {
        const line = document.createElementNS(kSvg, 'path');
        line.setAttribute('d', path);
        if (style) {
            line.classList.add(style);
        }
        svg.append(line);
    };
    add(kPaths[name]);
    if (kFilled[name]) {
        add(kFilled[name], 'filled');
    }
    return svg;
};
