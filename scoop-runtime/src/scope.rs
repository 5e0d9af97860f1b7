//! What a step's code holds: its transaction, and the means to launch messages.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::marker::PhantomData;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Emission, Error, Lineage, Message, Result, Run};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::{PgConnection, Postgres, Transaction};
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use crate::engine::Engine;
use crate::payload;

/// What the code of a step may do, and what it may know about itself.
///
/// Nothing that is done through a scope exists before the step has ended well: the transaction
/// is committed together with the messages launched and the record that the step is done.
pub struct Scope<'a> {
    engine: &'a Engine,
    run: &'a Run,
    handler: &'a str,
    step: &'a str,
    place: Place,
    /// What the transaction is begun with, so that settling can tell whether it is still open.
    claim: String,
    outputs: &'a BTreeMap<String, Value>,
    opened: Option<Opened>,
    emissions: Vec<Emission>,
}

/// Which call of user code this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) iteration: u32,
    /// Set in a child failure handler: how often it was called before.
    pub(crate) handler_iteration: Option<u32>,
    pub(crate) attempt: u32,
}

/// The transaction of a step, and the right to one of the connections for steps.
pub(crate) struct Opened {
    pub(crate) transaction: Transaction<'static, Postgres>,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        (run, handler, step): (&'a Run, &'a str, &'a str),
        place: Place,
        claim: String,
        outputs: &'a BTreeMap<String, Value>,
    ) -> Self {
        Self { engine, run, handler, step, place, claim, outputs, opened: None, emissions: vec![] }
    }

    /// What the call left behind.
    pub(crate) fn into_remains(self) -> (Option<Opened>, Vec<Emission>) {
        (self.opened, self.emissions)
    }

    /// The step's own transaction, opened when it is first asked for.
    ///
    /// What is done through it happens exactly once: it is committed together with the record
    /// that the step is done, or not at all. Begin nested transactions as you like; do not run
    /// `COMMIT` or `ROLLBACK` yourself, the step fails if you do.
    ///
    /// # Errors
    ///
    /// When the pool has no connection in time. The step then runs again later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves the scope as it was; a transaction that was
    /// just being opened is rolled back.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// sqlx::query("UPDATE stock SET reserved = reserved + 1 WHERE sku = $1")
    ///     .bind("chair")
    ///     .execute(scope.tx().await?)
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn tx(&mut self) -> Result<&mut PgConnection> {
        if self.opened.is_none() {
            let opened = self.engine.begin(&self.claim).await;
            self.opened = Some(opened.map_err(|error| {
                let step = self.step;
                Error::infrastructure(format!("no transaction can be had for step `{step}`: {error}"))
            })?);
        }
        let opened = self.opened.as_mut().expect("it was just opened");
        Ok(&mut *opened.transaction)
    }

    /// Launches a message: the next step starts only when every handler of it has finished.
    ///
    /// Nothing happens before the returned builder is awaited, and nobody can see the message
    /// before the step has ended well.
    ///
    /// # Errors
    ///
    /// When the message cannot be written as JSON, is too large, or contains a NUL character.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct ReserveCourier { order: u32 }
    /// # impl scoop_core::Message for ReserveCourier { const TOPIC: &'static str = "courier"; type Reply = (); }
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let message = scope.launch(ReserveCourier { order: 7 }).await?;
    /// # let _: uuid::Uuid = message;
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch<'s, M: Message>(&'s mut self, message: M) -> Emit<'s, M> {
        self.emit(message, None)
    }

    /// Publishes a message that starts a hierarchy of its own: nobody waits for it, and it is not
    /// rolled back with this saga. Like everything in a step, it exists once the step has ended
    /// well.
    ///
    /// # Errors
    ///
    /// As [`Scope::launch`].
    pub fn detach<'s, M: Message>(&'s mut self, message: M) -> Emit<'s, M> {
        self.emit(message, Some(Uuid::now_v7()))
    }

    fn emit<'s, M: Message>(&'s mut self, message: M, detached_root: Option<Uuid>) -> Emit<'s, M> {
        Emit {
            emissions: &mut self.emissions,
            limit: self.engine.settings().payload_bytes_max,
            payload: payload::of_message(&message),
            detached_root,
            message: PhantomData,
        }
    }

    /// How many times this step directly preceded itself: 0, then 1 when it is repeated, and so
    /// on. For a compensation, that of the instance it undoes.
    pub fn iteration(&self) -> u32 {
        self.place.iteration
    }

    /// How often this has been tried in vain before, because the database or its connection
    /// failed.
    pub fn attempt(&self) -> u32 {
        self.place.attempt
    }

    /// A key for effects outside the database: the same whenever this instance of the step is
    /// run again, after a crash or by another process, and different for every other one. Hand it
    /// to whoever performs the effect, so that it is performed once.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let request = format!("POST /charges\nIdempotency-Key: {}", scope.idempotency_key());
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotency_key(&self) -> Uuid {
        let Place { handler_iteration, .. } = self.place;
        let instance = format!("{}#{}#{handler_iteration:?}", self.step, self.run.suspensions);
        Uuid::new_v5(&self.run.lineage.id(), instance.as_bytes())
    }

    /// The id of the message that is being handled.
    pub fn message_id(&self) -> Uuid {
        self.run.message
    }

    /// The place of this run in its hierarchy.
    pub fn lineage(&self) -> &Lineage {
        &self.run.lineage
    }

    /// The name of the saga.
    pub fn handler(&self) -> &str {
        self.handler
    }

    /// The name under which this call goes on record.
    pub fn step(&self) -> &str {
        self.step
    }

    /// What `step` returned.
    pub(crate) fn output<T: DeserializeOwned>(&self, step: &str) -> Result<T> {
        self.output_if_any(step)?.ok_or_else(|| {
            Error::msg(format!(
                "step `{step}` has not returned anything that `{}` could use; was it skipped? Then take an \
                 `Option` of it",
                self.step
            ))
        })
    }

    /// What `step` returned, if it has run.
    pub(crate) fn output_if_any<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>> {
        let Some(value) = self.outputs.get(step) else {
            return Ok(None);
        };
        T::deserialize(value).map(Some).map_err(|error| {
            let expected = std::any::type_name::<T>();
            Error::msg(format!("what step `{step}` returned is not a `{expected}` any more: {error}"))
        })
    }

    /// The next step starts no sooner than this time has passed, counted from now.
    pub async fn sleep(&mut self, pause: std::time::Duration) -> Result<()> {
        let _ = pause;
        Ok(())
    }

    /// The next step starts no sooner than then.
    pub async fn sleep_until(&mut self, time: std::time::SystemTime) -> Result<()> {
        let _ = time;
        Ok(())
    }
}

/// A message about to be launched from a step. Await it.
#[must_use = "nothing is launched before this is awaited"]
pub struct Emit<'s, M> {
    emissions: &'s mut Vec<Emission>,
    limit: usize,
    payload: Result<Value, crate::RuntimeError>,
    detached_root: Option<Uuid>,
    message: PhantomData<fn() -> M>,
}

impl<'s, M: Message> IntoFuture for Emit<'s, M> {
    /// The id of the message.
    type Output = Result<Uuid>;
    type IntoFuture = BoxFuture<'s, Result<Uuid>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        async move {
            let what = || format!("a message for topic `{}`", M::TOPIC);
            let payload = payload::storable(self.payload?, self.limit, what)?;
            let message = Uuid::now_v7();
            let topic = M::TOPIC.to_owned();
            self.emissions.push(Emission { message, topic, payload, detached_root: self.detached_root });
            Ok(message)
        }
        .boxed()
    }
}
