// Runs before the first paint, so that a dark page does not flash white. theme.js does the rest.
{
    const chosen = localStorage.getItem('flux2-theme');
    const isDark = chosen === 'dark' || (chosen !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches);
    document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
}
