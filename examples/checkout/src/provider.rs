//! The payment provider: an external system, which no transaction of ours reaches.
//!
//! Its ledger is a file that is only ever appended to, one line for each charge or refund. Like
//! any decent provider it takes an idempotency key, and does nothing twice for the same one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;

/// The limit of every card.
const LIMIT_CENTS: i64 = 500_000;

#[derive(Clone)]
pub struct Provider {
    ledger: Arc<PathBuf>,
    /// Whether the next refund is refused.
    is_down: Arc<AtomicBool>,
}

/// One line of the ledger. A refund has a negative amount.
#[derive(Clone)]
pub struct Entry {
    pub payment: String,
    pub order: i32,
    pub cents: i64,
    pub key: Uuid,
}

pub enum ChargeError {
    Declined(Declined),
    Unknown(io::Error),
}

#[derive(Debug, thiserror::Error)]
#[error("the card is not good for {0} cents")]
pub struct Declined(i64);

pub enum RefundError {
    Refused(RefundRefused),
    Unknown(io::Error),
}

#[derive(Debug, thiserror::Error)]
#[error("the payment provider is down and refused to refund {payment}: retry when it is up again")]
pub struct RefundRefused {
    payment: String,
}

impl Provider {
    pub fn at(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let ledger = Arc::new(folder.join("ledger.csv"));
        Ok(Self { ledger, is_down: Arc::default() })
    }

    /// From now on the provider is down, until it has refused one refund.
    pub fn go_down(&self) {
        self.is_down.store(true, Ordering::Relaxed);
    }

    /// Charges a card and returns the payment's id. By rule, it declines amounts above the limit, and the
    /// answer to a new charge sometimes gets lost.
    pub async fn charge(&self, key: Uuid, order: i32, cents: i64) -> Result<String, ChargeError> {
        if cents > LIMIT_CENTS {
            return Err(ChargeError::Declined(Declined(cents)));
        }
        let charge = self.once(key, move |ledger| Entry {
            key,
            payment: format!("P{}", ledger.len() + 1),
            order,
            cents,
        });
        match charge.await {
            Ok((_, true)) if order % 10 == 5 => {
                let lost = io::Error::other("the answer of the provider was lost");
                Err(ChargeError::Unknown(lost))
            }
            Ok((entry, _)) => Ok(entry.payment),
            Err(error) => Err(ChargeError::Unknown(error)),
        }
    }

    /// Refunds a payment. A provider that is down refuses.
    pub async fn refund(&self, key: Uuid, payment: String) -> Result<(), RefundError> {
        if self.is_down.swap(false, Ordering::Relaxed) {
            return Err(RefundError::Refused(RefundRefused { payment }));
        }
        let refund = self.once(key, move |ledger| {
            let charge = ledger.iter().find(|entry| entry.payment == payment);
            let charge = charge.expect("only what was charged is refunded").clone();
            Entry { key, cents: -charge.cents, ..charge }
        });
        refund.await.map(drop).map_err(RefundError::Unknown)
    }

    /// All charges and refunds.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        parse(&fs::read_to_string(&*self.ledger)?)
    }

    /// Starts a new shop with an empty ledger. The ledger of an earlier shop is kept under another name.
    pub fn open_account(&self) -> io::Result<()> {
        if self.ledger.exists() {
            fs::rename(&*self.ledger, self.ledger.with_extension("csv.old"))?;
        }
        File::create(&*self.ledger).map(drop)
    }

    /// Appends an entry, unless there is one with this key. Returns whether it did.
    async fn once(
        &self,
        key: Uuid,
        entry: impl FnOnce(&[Entry]) -> Entry + Send + 'static,
    ) -> io::Result<(Entry, bool)> {
        let path = self.ledger.clone();
        let work = move || {
            let mut file = OpenOptions::new().read(true).append(true).open(&*path)?;
            file.lock()?; // against the other processes, until the file is closed
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let ledger = parse(&text)?;
            if let Some(known) = ledger.iter().find(|entry| entry.key == key) {
                return Ok((known.clone(), false));
            }
            let entry = entry(&ledger);
            let Entry { key, payment, order, cents } = &entry;
            file.write_all(format!("{payment},{order},{cents},{key}\n").as_bytes())?;
            Ok((entry, true))
        };
        tokio::task::spawn_blocking(work).await?
    }
}

fn parse(ledger: &str) -> io::Result<Vec<Entry>> {
    let entry = |line: &str| {
        let columns: Vec<_> = line.split(',').collect();
        let [payment, order, cents, key] = columns[..] else {
            return None;
        };
        Some(Entry {
            key: key.parse().ok()?,
            payment: payment.into(),
            order: order.parse().ok()?,
            cents: cents.parse().ok()?,
        })
    };
    let unreadable = |line| io::Error::other(format!("the ledger has a line `{line}`"));
    let lines = ledger.lines();
    lines.map(|line| entry(line).ok_or_else(|| unreadable(line))).collect()
}
