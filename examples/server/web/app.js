// Starts the page: asks the server what it offers, and connects the parts.

import {pictureButtons} from './actions.js';
import {getBlob, getJson} from './api.js';
import {canvas} from './canvas.js';
import {$, announce, el, fillTexts} from './dom.js';
import {chooseFile, startDrop} from './drop.js';
import {gallery} from './gallery.js';
import {startKeys} from './help.js';
import {jobs} from './jobs.js';
import {startKey} from './key.js';
import {startLoras} from './loras.js';
import {startMake} from './make.js';
import {tell, tellError} from './messages.js';
import {startPromptHistory} from './prompt_history.js';
import {startQueue} from './queue.js';
import {startReferences} from './references.js';
import {settings} from './settings.js';
import {startSize} from './size.js';
import {startStage} from './stage.js';
import {t} from './texts.js';
import {startTheme} from './theme.js';
import {openViewer} from './viewer.js';

function showConnection() {
    const waiting = jobs.active.filter(({state}) => state === 'queued').length;
    const isBusy = jobs.connection === 'ready' && jobs.active.length > 0;
    const text = isBusy ? (waiting > 0 ? t('connection.waiting', {n: waiting}) : t('connection.busy')) : t(`connection.${jobs.connection}`);
    const line = $('connection');
    line.dataset.state = isBusy ? 'busy' : jobs.connection;
    if (line.textContent !== text) {
        line.replaceChildren(el('span', {}, text));
    }
}

// What the server offers may be another after a restart.
async function readOffer() {
    try {
        const [capabilities, {models}, {loras}] =
            await Promise.all(['capabilities', 'models', 'loras'].map((name) => getJson(`api/v1/${name}`, {quiet: true})));
        settings.offer({capabilities, models, loras});
    } catch (error) {
        if (error.status !== 0 && error.status !== 503 && error.status !== 401) {
            tellError(error);
        }
    }
}

// Of a result, until the next one is shown.
let address = '';
async function addressOf({url}) {
    const blob = await getBlob(url);
    URL.revokeObjectURL(address);
    address = URL.createObjectURL(blob);
    return address;
}

function start() {
    fillTexts(document);
    startTheme();
    startKey(() => jobs.refresh().then(readOffer));
    startReferences();
    startSize();
    startLoras();
    startPromptHistory();
    canvas.start();
    startMake(canvas);
    startStage({open: openViewer, buttons: pictureButtons, address: addressOf, openFile: chooseFile});
    startQueue();
    startDrop();
    startKeys();
    jobs.addEventListener('jobs', showConnection);
    let lost = null;
    jobs.addEventListener('connection', ({detail}) => {
        showConnection();
        lost?.remove();
        lost = jobs.connection === 'lost' ? tell(t('connection.lost'), {problem: true}) : null;
        if (jobs.connection === 'ready') {
            offer.then(() => (detail.before === 'connecting' && settings.capabilities !== null ? null : readOffer()));
            if (detail.before === 'lost') {
                announce(t('connection.back'));
            }
        }
    });
    showConnection();
    const offer = readOffer();
    jobs.start();
    gallery.start(openViewer);
}

start();
