// Light or dark: as the system says, or as chosen.

import {$} from './dom.js';

const NAME = 'flux2-theme';

export function startTheme() {
    const system = matchMedia('(prefers-color-scheme: dark)');
    const select = $('theme');
    select.value = localStorage.getItem(NAME) ?? 'auto';
    const show = () => {
        const isDark = select.value === 'dark' || (select.value === 'auto' && system.matches);
        document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
    };
    system.addEventListener('change', show);
    select.addEventListener('change', () => {
        if (select.value === 'auto') {
            localStorage.removeItem(NAME);
        } else {
            localStorage.setItem(NAME, select.value);
        }
        show();
    });
    show();
}
