// The page in a browser. Usage: node main.mjs [WORDS]
import { closePages, startBrowser, stopBrowser } from './page.mjs'
import { runAll } from './runner.mjs'
import { stopAll, stopOthers } from './server.mjs'
import './cases_make.mjs'
import './cases_edit.mjs'
import './cases_keep.mjs'
import './cases_reach.mjs'
import './cases_server.mjs'
import './cases_speed.mjs'

let number = 0
await startBrowser()
const failed = await runAll(process.argv[2] ?? '', (problem) => closePages(problem !== null, ++number).finally(stopOthers))
await stopBrowser()
await stopAll()
process.exit(failed > 0 ? 1 : 0)
