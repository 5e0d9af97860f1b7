//! The log of an item, or of a round that acknowledges none: who was handed the item, and which round
//! counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::store::{Entry, Round};

/// What is written down in such a log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Note {
    /// Somebody was handed the item.
    HandedOut { receipt: String },
    /// He gave it back.
    Abandoned { epoch: u64 },
    /// He is through with it, and this follows.
    Round { epoch: u64, round: Round },
    /// The round that counts was carried out.
    Done,
}

/// What follows from a log. Whoever reads further finds the same round, if there was one.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The one that counts.
    pub(super) round: Option<Round>,
    /// Whether it was carried out.
    pub(super) done: bool,
    handed_out: BTreeMap<String, u64>,
    /// Under which epoch a round counts now: before the first hand-out, which only a round has that
    /// acknowledges nothing, it is 0.
    open: Option<u64>,
}

impl Note {
    /// As an entry of that log, under a key of which there can be but one.
    pub(super) fn entry(&self, log: &str) -> Entry {
        let key = match self {
            Self::HandedOut { receipt } => format!("handed out/{receipt}"),
            Self::Abandoned { epoch } => format!("abandoned/{epoch}"),
            Self::Round { epoch, .. } => format!("round/{epoch}"),
            Self::Done => "done".to_owned(),
        };
        Entry { stream: log.to_owned(), key, body: serde_json::json!(self) }
    }
}

impl Log {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let begun = Self { open: Some(0), ..Self::default() };
        let notes = entries.iter().filter_map(|entry| Note::deserialize(&entry.body).ok());
        notes.fold(begun, Self::followed_by)
    }

    fn followed_by(mut self, note: Note) -> Self {
        match note {
            Note::Done => self.done = true,
            _ if self.round.is_some() => {}
            Note::HandedOut { receipt } => {
                let epoch = self.handed_out.values().max().map_or(1, |newest| newest + 1);
                self.open = Some(epoch);
                self.handed_out.insert(receipt, epoch);
            }
            Note::Abandoned { epoch } => self.open = self.open.filter(|open| *open != epoch),
            Note::Round { epoch, round } => {
                self.round = Some(round).filter(|_| self.open == Some(epoch));
            }
        }
        self
    }

    /// Under which epoch an item was handed out with this receipt, if no round had counted by then.
    pub(super) fn epoch_of(&self, receipt: &str) -> Option<u64> {
        self.handed_out.get(receipt).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(notes: &[Note]) -> Log {
        Log::of(&notes.iter().map(|note| note.entry("log")).collect::<Vec<_>>())
    }

    fn handed_out(receipt: &str) -> Note {
        Note::HandedOut { receipt: receipt.to_owned() }
    }

    fn round(epoch: u64, says: &str) -> Note {
        Note::Round { epoch, round: Round::new().append("stream", says, says.into()) }
    }

    fn counts(log: &Log) -> Option<&str> {
        log.round.as_ref().map(|round| &*round.append[0].key)
    }

    #[test]
    fn the_round_of_the_last_holder_counts() {
        let log = log(&[handed_out("a"), handed_out("b"), round(1, "late"), round(2, "in time")]);
        assert_eq!(counts(&log), Some("in time"));
        assert_eq!((log.epoch_of("a"), log.epoch_of("b"), log.done), (Some(1), Some(2), false));
    }

    #[test]
    fn what_comes_after_the_round_changes_nothing() {
        let log = log(&[handed_out("a"), round(1, "first"), handed_out("b"), round(2, "second"), Note::Done]);
        assert_eq!(counts(&log), Some("first"));
        assert_eq!((log.epoch_of("b"), log.done), (None, true));
    }

    #[test]
    fn who_has_abandoned_has_no_round_left() {
        let abandoned = |epoch| Note::Abandoned { epoch };
        assert_eq!(counts(&log(&[handed_out("a"), abandoned(1), round(1, "late")])), None);
        let by_another = [handed_out("a"), handed_out("b"), abandoned(1), round(2, "in time")];
        assert_eq!(counts(&log(&by_another)), Some("in time"));
    }

    #[test]
    fn nobody_has_epoch_zero_of_an_item() {
        assert_eq!(counts(&log(&[round(0, "launch")])), Some("launch"));
        assert_eq!(counts(&log(&[handed_out("a"), round(0, "nobody's")])), None);
    }
}
