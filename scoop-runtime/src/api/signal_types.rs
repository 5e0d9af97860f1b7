//! The types as which sagas read signals, as looked up not long ago.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::store::SignalType;
use crate::util::sync::{Mutex, lock};

/// The types as which sagas read signals, by the names of these, each with the time of the look-up.
#[derive(Default)]
pub(super) struct SignalTypes(Mutex<BTreeMap<String, (Instant, Vec<SignalType>)>>);

/// How long a look-up counts for signals that fit it.
const LOOKED_UP_FOR: Duration = Duration::from_secs(60);

/// The maximum number of names whose types are remembered.
const NAMES_MAX: usize = 1_000;

impl SignalTypes {
    /// The types, if they were looked up not long ago.
    pub(super) fn known(&self, name: &str) -> Option<Vec<SignalType>> {
        let known = lock(&self.0);
        known.get(name).filter(|(at, _)| at.elapsed() < LOOKED_UP_FOR).map(|(_, types)| types.clone())
    }

    pub(super) fn remember(&self, name: &str, types: Vec<SignalType>) {
        let mut known = lock(&self.0);
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), (Instant::now(), types));
    }
}
