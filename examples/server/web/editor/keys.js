// The editor's keyboard shortcuts, and a pen that is moved by the arrow keys.

const kPenStep = 8;
const kLargeStep = 48;

const kArrows = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};

// Each: the keys as shown, the name of its text in texts.editor.shortcuts, whether an event is meant, what to do.
export const kShortcuts = [
    {keys: ['B'], text: 'brush', is: (key) => key === 'b', run: (editor) => editor.setTool('brush')},
    {keys: ['E'], text: 'eraser', is: (key) => key === 'e', run: (editor) => editor.setTool('eraser')},
    {keys: ['R'], text: 'rectangle', is: (key) => key === 'r', run: (editor) => editor.setTool('rectangle')},
    {keys: ['L'], text: 'lasso', is: (key) => key === 'l', run: (editor) => editor.setTool('lasso')},
    {keys: ['V'], text: 'move', is: (key) => key === 'v', run: (editor) => editor.setTool('move')},
    {keys: ['['], text: 'smaller', is: (key) => key === '[', run: (editor) => editor.scaleBrush(0.8)},
    {keys: [']'], text: 'larger', is: (key) => key === ']', run: (editor) => editor.scaleBrush(1.25)},
    {
        keys: ['X'],
        text: 'subtract',
        is: (key) => key === 'x',
        run: (editor) => editor.setSubtract(!editor.settings.subtract),
    },
    {keys: ['I'], text: 'invert', is: (key) => key === 'i', run: (editor) => editor.invertMask()},
    {
        keys: ['Del'],
        text: 'clear',
        is: (key) => key === 'delete' || key === 'backspace',
        run: (editor) => editor.clearMask(),
    },
    {
        keys: ['Ctrl', 'Z'],
        text: 'undo',
        is: (key, event) => isCommand(event) && key === 'z' && !event.shiftKey,
        run: (editor) => editor.undo(),
    },
    {
        keys: ['Ctrl', 'Y'],
        text: 'redo',
        is: (key, event) => isCommand(event) && (key === 'y' || (key === 'z' && event.shiftKey)),
        run: (editor) => editor.redo(),
    },
    {keys: ['+'], text: 'zoomIn', is: (key) => key === '+' || key === '=', run: (editor) => editor.zoom(1.25)},
    {keys: ['-'], text: 'zoomOut', is: (key) => key === '-', run: (editor) => editor.zoom(0.8)},
    {keys: ['0'], text: 'fit', is: (key) => key === '0', run: (editor) => editor.fit()},
    {keys: ['1'], text: 'actual', is: (key) => key === '1', run: (editor) => editor.zoom(1 / editor.view.scale)},
];

// Shown in the list as well; they are handled below and by the gestures.
export const kPenKeys = [
    {keys: ['←', '↑', '→', '↓'], text: 'penMove'},
    {keys: ['Enter'], text: 'pen'},
    {keys: ['Esc'], text: 'cancel'},
    {keys: ['Space'], text: 'pan'},
];

const isCommand = (event) => event.ctrlKey || event.metaKey;

const isTyping = (target) => target.matches('input:not([type=checkbox]):not([type=range]), select, textarea');

const movePen = (editor, event) => {
    const [x, y] = kArrows[event.key];
    const step = (event.shiftKey ? kLargeStep : kPenStep) / editor.view.scale;
    editor.pen.step(x * step, y * step);
};

const canvasKey = (editor, event) => {
    if (event.key in kArrows) {
        movePen(editor, event);
    } else if (event.key === 'Enter') {
        editor.pen.toggle();
    } else if (event.key === 'Escape' && editor.pen.isDrawing) {
        editor.pen.cancel();
    } else if (event.key === ' ') {
        editor.gestures.spaceHeld = true;
    } else {
        return false;
    }
    return true;
};

// Shortcuts hold while the focus is inside the editor.
export const listenToKeys = (editor, container, canvas) => {
    container.addEventListener('keydown', (event) => {
        if (!editor.picture || event.altKey || isTyping(event.target)) {
            return;
        }
        const key = event.key.toLowerCase();
        const found = kShortcuts.find(
            (shortcut) => isCommand(event) === (shortcut.keys[0] === 'Ctrl') && shortcut.is(key, event),
        );
        if (found) {
            found.run(editor);
        } else if (event.target !== canvas || isCommand(event) || !canvasKey(editor, event)) {
            return;
        }
        event.preventDefault();
        event.stopPropagation();
    });
    const release = (event) => {
        if (!event.key || event.key === ' ') {
            editor.gestures.spaceHeld = false;
        }
    };
    canvas.addEventListener('keyup', release);
    canvas.addEventListener('blur', release);
};
