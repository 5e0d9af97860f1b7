//! Reports what takes long, in the words of `libtest`: the output of a run that hangs names the seed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time after which something is reported, that of `libtest`.
const SLOW: Duration = Duration::from_secs(60);

static IN_PROGRESS: Mutex<Vec<Entry>> = Mutex::new(vec![]);

struct Entry {
    number: u64,
    what: String,
    began: Instant,
    is_reported: bool,
}

/// Something in progress, until this is dropped.
pub(crate) struct Watched(u64);

/// Counts this as in progress.
pub(crate) fn watch(what: String) -> Watched {
    let mut all = in_progress();
    let number = all.last().map_or(0, |last| last.number + 1);
    all.push(Entry { number, what, began: Instant::now(), is_reported: false });
    Watched(number)
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut all = in_progress();
        let at = all.iter().position(|entry| entry.number == self.0);
        let ended = at.map(|at| all.remove(at));
        if let Some(ended) = ended.filter(|ended| ended.is_reported) {
            println!("{} ... ended after {:.0?}", ended.what, ended.began.elapsed());
        }
    }
}

/// Reports everything that takes long, from now until the process ends.
pub(crate) fn report() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            for entry in in_progress().iter_mut() {
                if !entry.is_reported && entry.began.elapsed() >= SLOW {
                    entry.is_reported = true;
                    println!("{} has been running for over {} seconds", entry.what, SLOW.as_secs());
                }
            }
        }
    });
}

fn in_progress() -> MutexGuard<'static, Vec<Entry>> {
    IN_PROGRESS.lock().unwrap_or_else(PoisonError::into_inner)
}
