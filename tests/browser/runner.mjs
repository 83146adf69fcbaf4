// Cases with names that are sentences, run one after the other.

const cases = []

export const test = (name, run) => cases.push({ name, run })

const limit = (seconds, work) => {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`took longer than ${seconds} s`)), seconds * 1000)
  })
  return Promise.race([work, late]).finally(() => clearTimeout(timer))
}

// Runs the cases whose names contain the words. `after` ends each, and may throw too. Returns how many failed.
export const runAll = async (words, after) => {
  let failed = 0
  const begun = Date.now()
  const chosen = cases.filter(({ name }) => name.includes(words))
  for (const { name, run } of chosen) {
    const from = Date.now()
    let problem = null
    try {
      await limit(90, run())
    } catch (error) {
      problem = error
    }
    await after(problem).catch((error) => { problem ??= error })
    failed += problem ? 1 : 0
    console.log(`${problem ? 'FAILED' : 'ok'}  ${((Date.now() - from) / 1000).toFixed(1)} s  ${name}`)
    if (problem) console.log(problem.stack)
  }
  console.log(`${chosen.length - failed} of ${chosen.length} cases passed in ${((Date.now() - begun) / 1000).toFixed(0)} s`)
  return chosen.length === 0 ? 1 : failed
}
