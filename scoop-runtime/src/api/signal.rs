//! Signals from a client.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Signal, SignalKey};
use serde_json::Value;
use sqlx::PgConnection;
use tracing::{Instrument as _, Span};
use uuid::Uuid;

use super::scoop::Scoop;
use crate::error::ErrorKind;
use crate::error::is_denied;
use crate::saga::shape;
use crate::saga::signal::{RETENTION_MAX, prepare, prepare_value};
use crate::store::{NewSignal, SignalType};
use crate::telemetry::{self, trace};
use crate::util::detached::run_to_completion;
use crate::util::ids;
use crate::util::retries::{Attempt, GivenUp};
use crate::{RuntimeError, Subscribed, engine};

/// A signal about to be sent. Await it.
#[must_use = "nothing is sent without `.await`: write `.await?` after it"]
pub struct SendSignal {
    scoop: Scoop,
    prepared: Result<NewSignal, RuntimeError>,
    required: bool,
}

impl SendSignal {
    pub(crate) fn new<S: Signal>(scoop: Scoop, signal: &S, key: String) -> Self {
        let prepared = prepare(signal, key, scoop.limits().payload_bytes_max);
        Self { scoop, prepared, required: false }
    }

    /// A signal without a Rust type.
    #[doc(hidden)]
    pub fn named(scoop: Scoop, to: SignalKey, payload: Value) -> Self {
        let limit = scoop.limits().payload_bytes_max;
        let prepared = prepare_value(to, RETENTION_DEFAULT, limit, || Ok(payload));
        Self { scoop, prepared, required: false }
    }

    /// A signal for runs that await it now, with a payload that was checked before.
    #[doc(hidden)]
    pub fn by_operator(scoop: Scoop, to: SignalKey, payload: Value) -> Self {
        let signal = NewSignal { id: ids::now_v7(), to, payload, retention: OPERATOR_RETENTION, trace: None };
        Self { scoop, prepared: Ok(signal), required: false }
    }

    /// Sets the time for which the signal is kept if no run awaits it, instead of that of its type.
    pub fn retention(mut self, time: Duration) -> Self {
        if let Ok(signal) = &mut self.prepared {
            signal.retention = time.min(RETENTION_MAX);
        }
        self
    }

    /// Sends the signal only if none with this id, name and key was sent before. So it can be sent again when the outcome is
    /// unknown, or when the sender does not know whether it is a repetition. A signal of another name or key may have the
    /// same id, such as that of an event that is sent on to several runs.
    pub fn id(mut self, id: impl Into<Uuid>) -> Self {
        if let Ok(signal) = &mut self.prepared {
            // A name and a key have no NUL.
            let of_id = format!("{}\0{}", signal.to.name, signal.to.key);
            signal.id = Uuid::new_v5(&id.into(), of_id.as_bytes());
        }
        self
    }

    /// Refuses the signal if no saga of any program that has ever started on this
    /// database awaits signals of its name. A role that may not read this sends it.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let paid = serde_json::json!({ "amount": 990 });
    /// let reached = scoop.operate().runs().signal("payments.confirmed", paid, "order 7").required().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Sends the signal in a transaction of the caller: it exists exactly if that commits, and is delivered soon after
    /// that. Returns whether no signal with its id was sent before.
    ///
    /// # Errors
    ///
    /// As [`Scoop::signal`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the signal may be part of the transaction. Roll that back.
    pub async fn in_transaction(self, connection: &mut PgConnection) -> Result<bool, RuntimeError> {
        let mut signal = self.prepared?;
        if self.required {
            check_awaited(&self.scoop, &signal.to.name).await?;
        }
        check_signal(&self.scoop, &signal.to.name, &signal.payload).await?;
        let span = begin(&mut signal);
        let sent = self.scoop.store().insert_signal(connection, &signal).instrument(span).await;
        let is_new = sent.map_err(RuntimeError::database("a signal was sent"))?;
        self.scoop.unhandled().signalled(&signal.to.name);
        self.scoop.deliver_after_foreign_commit(signal.to);
        Ok(is_new)
    }
}

impl IntoFuture for SendSignal {
    /// The number of runs that it has reached.
    type Output = Result<u64, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let Self { scoop, prepared, required } = self;
            let mut signal = prepared?;
            if required {
                check_awaited(&scoop, &signal.to.name).await?;
            }
            check_signal(&scoop, &signal.to.name, &signal.payload).await?;
            let span = begin(&mut signal);
            // The workers of the runs that it reaches are notified even if the caller stops waiting.
            let sending = run_to_completion(async move {
                let send = async |attempt| {
                    // The first attempt may have waited for a transaction that holds the id. Of those that go on
                    // waiting, one at a time takes a connection.
                    let _permit = match attempt {
                        Attempt::First => None,
                        Attempt::Repeat => Some(scoop.repeated_signals().acquire().await),
                    };
                    match scoop.engine() {
                        Some(engine) => engine::send_signal(engine, &signal).await,
                        None => scoop.store().send_signal(&signal, None).await.map(|sent| {
                            scoop.notify_ready(&sent.handlers);
                            sent.reached
                        }),
                    }
                };
                let sent = scoop.retrying(send).await;
                if matches!(sent, Ok(0)) {
                    scoop.unhandled().signalled(&signal.to.name);
                }
                sent
            });
            let sent = sending.instrument(span).await;
            sent.map_err(GivenUp::error("a signal was sent"))
        }
        .boxed()
    }
}

/// Refuses a name that no saga awaits.
async fn check_awaited(scoop: &Scoop, name: &str) -> Result<(), RuntimeError> {
    let awaited = match scoop.retrying(|_| scoop.store().awaited_names(false)).await {
        Err(given_up) if is_denied(&given_up.source) => return Ok(()),
        awaited => awaited.map_err(GivenUp::error("the names of awaited signals were looked up"))?,
    };
    if awaited.iter().any(|awaited| awaited == name) {
        return Ok(());
    }
    let near = Subscribed::near(name, awaited.iter().map(String::as_str)).near;
    Err(RuntimeError::from(ErrorKind::SignalNotAwaited { signal: name.to_owned(), near }))
}

/// What keeps the sagas that await a signal from reading this payload; empty if one of them may read it. Without a living one
/// those count that programs had before.
fn misfits(types: &[SignalType], payload: &Value) -> Vec<String> {
    let has_living = types.iter().any(|it| it.is_living);
    let types = types.iter().filter(|it| it.is_living || !has_living);
    let of_types =
        types.map(|it| it.shape.as_ref().map_or_else(Vec::new, |shape| shape::misfits(shape, payload)));
    of_types.min_by_key(Vec::len).unwrap_or_default()
}

/// Refuses a payload of a signal of this name that no saga which awaits it can read.
pub async fn check_signal(scoop: &Scoop, name: &str, payload: &Value) -> Result<(), RuntimeError> {
    let known = scoop.signal_types().known(name);
    if known.is_some_and(|types| misfits(&types, payload).is_empty()) {
        return Ok(());
    }
    // A role may lack the right. After another failure the sending fails, too.
    let Ok(types) = scoop.store().signal_types(name).await else { return Ok(()) };
    let misfits = misfits(&types, payload);
    scoop.signal_types().remember(name, types);
    match misfits.is_empty() {
        true => Ok(()),
        false => Err(RuntimeError::from(ErrorKind::Signal {
            signal: name.to_owned(),
            why: format!("no saga that awaits it can read it: {}", misfits.join("; ")),
        })),
    }
}

/// Begins the span of a signal, to which the steps that go on with it are linked.
fn begin(signal: &mut NewSignal) -> Span {
    let span = telemetry::signal_span(&signal.to);
    signal.trace = trace::of(&span).or_else(trace::current);
    span
}

/// The time for which a signal without a type is kept: that of a derived type without a setting.
const RETENTION_DEFAULT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The time for which a signal is kept that an operator sends to a waiting run. If another signal reaches the run first, this
/// one must not end a later wait.
const OPERATOR_RETENTION: Duration = Duration::from_secs(60);

impl Scoop {
    /// Sends a signal to the runs that await it with this key. Returns the number of runs that it has reached.
    ///
    /// If no run awaits it, it is kept for as long as its type says, and goes to the first run that does. It is
    /// delivered once: to all runs that await it at that moment.
    ///
    /// Nothing happens before the returned builder is awaited.
    ///
    /// # Errors
    ///
    /// If the key has no bytes, more than 255, or a NUL character; if the signal cannot be written as JSON, is too large
    /// or contains a NUL character; if no saga that awaits it can read it, by the recorded shapes of their types; or if the database fails for longer than
    /// [`Builder::retry_for`](crate::Builder::retry_for).
    ///
    /// # Cancel safety
    ///
    /// Once polled, the signal may be sent even if the future is dropped.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct PaymentConfirmed { amount: i64 }
    /// # impl scoop_core::Signal for PaymentConfirmed {
    /// #     const NAME: &'static str = "payments.confirmed";
    /// #     const RETENTION: std::time::Duration = std::time::Duration::from_secs(60);
    /// # }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let reached = scoop.signal(PaymentConfirmed { amount: 990 }, "order 7").await?;
    /// println!("{reached} runs go on");
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal<S: Signal>(&self, signal: S, key: impl Into<String>) -> SendSignal {
        SendSignal::new(self.clone(), &signal, key.into())
    }
}
