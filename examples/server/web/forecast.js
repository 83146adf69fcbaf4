// What the job would take in memory and time, said before it is started. Asked for when the user pauses; kept for each choice.

import {post} from './api.js';
import {$, debounced} from './dom.js';
import {bytesText, timeText} from './format.js';
import {jobs} from './jobs.js';
import {settings} from './settings.js';
import {t} from './texts.js';

const PAUSE_MS = 700;
const kept = new Map();  // choice -> {text, problem}

let abort = null;

// It would only delay the job that is about to start.
export function cancelForecast() {
    abort?.abort();
}

function textOf(plan, count) {
    const device = settings.capabilities?.devices[0] ?? {};
    const isGpu = plan.device_bytes > 0;
    const used = isGpu ? plan.device_bytes : plan.host_bytes + plan.mapped_bytes;
    const total = isGpu ? device.memory_bytes : device.host_memory_bytes ?? device.memory_bytes;
    const passes = Math.ceil(count / plan.pictures_per_pass);
    const values = {used: bytesText(used, total || used), total: bytesText(total || used), time: timeText(plan.seconds * passes)};
    const text = t(`forecast.${plan.seconds > 0 ? (total ? 'fits' : 'fitsNoTotal') : 'fitsNoTime'}`, values);
    return passes > 1 ? `${text}, ${t('forecast.passes', {n: plan.pictures_per_pass})}` : text;
}

function show({text = '', problem = false}) {
    $('forecast').textContent = text;
    $('forecast').classList.toggle('problem', problem);
}

// `fieldsOf` gives the fields of the job without its pictures' bytes mattering; null: nothing to forecast.
export function startForecast(fieldsOf) {
    const ask = debounced(PAUSE_MS, async () => {
        const found = fieldsOf();
        if (!found || jobs.connection !== 'ready' || jobs.active.length > 0) {
            return;
        }
        const {choice, fields} = found;
        if (kept.has(choice)) {
            show(kept.get(choice));
            return;
        }
        show({text: t('forecast.working')});
        abort = new AbortController();
        try {
            const plan = await post('api/v1/plan', await fields(), {signal: abort.signal, quiet: true});
            kept.set(choice, {text: textOf(plan, settings.values.count)});
        } catch (error) {
            if (error.name === 'AbortError') {
                return;
            }
            // What does not fit, or a wrong field, stays so; a busy or stopped server does not.
            if (error.status === 507 || error.status === 400) {
                kept.set(choice, {text: error.message, problem: true});
            }
        }
        show(kept.get(choice) ?? {});
    });
    return () => {
        cancelForecast();
        const found = fieldsOf();
        show((found && kept.get(found.choice)) || {});
        ask();
    };
}
