// The state of the page: what the server offers, and the values of the form. Views subscribe to "change" and show it, or to "offer" where
// only the server's part matters.

const NAME = 'flux2-form';

const DEFAULTS = {
    prompt: '',
    negative: '',
    model: '',       // empty: the first
    width: 0,        // 0: the model's
    height: 0,
    pixels: 0,       // the area that aspects keep; 0: the model's
    match: false,    // the size of the first reference
    count: 1,
    seed: '',        // empty: random
    steps: '',       // empty: the model's own; likewise below
    guidance: '',
    cfg: '',
    strength: 0.75,  // of an edit without a painted area
    area: 'whole',
    keepColours: false,
    loras: [],       // {name, strength, on}
};

class Settings extends EventTarget {
    #wasOffered;
    offered = new Promise((resolve) => { this.#wasOffered = resolve; });  // until the server has answered for the first time
    values = {...DEFAULTS, ...stored()};
    capabilities = null;
    models = [];
    loras = [];

    get model() {
        return this.models.find((model) => model.id === this.values.model) ?? this.models[0] ?? null;
    }

    get width() {
        return this.values.width || this.model?.defaults.width || 0;
    }

    get height() {
        return this.values.height || this.model?.defaults.height || 0;
    }

    get pixels() {
        const {width, height} = this.model?.defaults ?? {width: 0, height: 0};
        return this.values.pixels || width * height;
    }

    // Some values at once. `by` is who changed them, so that a field does not overwrite what is being typed in it.
    set(values, by = null) {
        Object.assign(this.values, values);
        localStorage.setItem(NAME, JSON.stringify(this.values));
        this.tell(by);
    }

    offer({capabilities, models, loras}) {
        Object.assign(this, {capabilities, models, loras});
        this.#wasOffered();
        this.dispatchEvent(new Event('offer'));
        this.tell(null);
    }

    tell(by) {
        this.dispatchEvent(new CustomEvent('change', {detail: {by}}));
    }
}

function stored() {
    try {
        return JSON.parse(localStorage.getItem(NAME) ?? '{}');
    } catch {
        return {};
    }
}

export const settings = new Settings();
