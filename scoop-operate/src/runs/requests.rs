//! Requests about runs, runs found by what is known of their messages, and messages that wait to be joined.

use std::time::SystemTime;

use futures_util::future::{FutureExt, TryFutureExt};
use scoop_core::SignalKey;
use scoop_runtime::internal::{
    self, RequestInfo, RequestTarget, StoredTime, check_signal, json, storable, system_time, time,
};
use scoop_runtime::{Handle, HierarchyId, IdKind, Request, RunId, SendSignal, SignalAnswer};
use serde::Serialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Relaunch, Runs};
use crate::database::Database;
use crate::error::failed;
use crate::list_request::{ListItem, ListRequest};
use crate::statements::JOIN_LIST;
use crate::{Operate, OperateError};

impl Runs {
    /// As [`Scoop::find_by_key`](scoop_runtime::Scoop::find_by_key), with the topic given by name.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let order = scoop.operate().runs().find_by_key("orders.placed", "order 7").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_by_key(
        &self,
        topic: &str,
        key: &str,
    ) -> impl Future<Output = Result<Handle, OperateError>> + Send {
        internal::find_topic_by_key(&self.operate.scoop, topic, key).err_into()
    }

    /// Launches the first message of a finished hierarchy again, in a new hierarchy: after it was rolled back, or cancelled, or
    /// its rollback failed. `id` as in [`Scoop::cancel`](scoop_runtime::Scoop::cancel): that of a run stands for its hierarchy. Await it.
    ///
    /// The message has the same payload, unless the request has [another one](Relaunch::payload), and the same context, but for
    /// deadlines and a delay: these times have passed. The [trees](scoop_runtime::Handle::tree) of both hierarchies name each other. The
    /// failed rollback of the old one stays, for an operator.
    ///
    /// A second request answers with the hierarchy of the first one, unless it is made [again](Relaunch::again), as long as the
    /// old hierarchy is [kept](scoop_runtime::Builder::retention).
    ///
    /// # Errors
    ///
    /// [`OperateError::is_not_found`] if nothing has that id, or if it is that of a message; if the payload cannot be stored, or is larger than 16 MiB; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the request may be made even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{Handle, RelaunchAnswer, Scoop};
    /// # async fn example(scoop: Scoop, order: Handle) -> Result<(), scoop_operate::OperateError> {
    /// let answer = scoop.operate().runs().relaunch(order.id(), "the stock is counted").source("Ada Lovelace").await?;
    /// if let RelaunchAnswer::Accepted(hierarchy) = answer {
    ///     println!("{}", scoop.find(hierarchy).await?.wait().await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn relaunch(&self, id: impl Into<Uuid>, reason: impl Into<String>) -> Relaunch {
        let about = RequestInfo::new(&self.operate.scoop, id, IdKind::RunOrHierarchy, reason);
        Relaunch::new(self.operate.clone(), about)
    }

    /// Sends a signal given by its name and its JSON, as [`Scoop::signal`](scoop_runtime::Scoop::signal) does with one of a
    /// type. For tools that do not have the types of the signals. It is kept for a week if no run awaits it, unless [`retention`](SendSignal::retention) says otherwise.
    ///
    /// # Errors
    ///
    /// As [`Scoop::signal`](scoop_runtime::Scoop::signal); and if the name is empty, has more than 180 characters, or a NUL character.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the signal may be sent even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let paid = serde_json::json!({ "amount": 990 });
    /// let reached = scoop.operate().runs().signal("payments.confirmed", paid, "order 7").await?;
    /// println!("{reached} runs go on");
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal(&self, name: impl Into<String>, payload: Value, key: impl Into<String>) -> SendSignal {
        let to = SignalKey { name: name.into(), key: key.into() };
        SendSignal::named(self.operate.scoop.clone(), to, payload)
    }

    /// Sends a run the signal that it awaits, given by its JSON: for operators, who see the run and not the sender. Await it
    /// for the response.
    ///
    /// Name and key are those that the run awaits at that moment. All other runs that await them get the signal, too, as
    /// with [`Runs::signal`]. Nothing checks that the runs can read the JSON. The request is recorded as an
    /// [intervention](crate::Failures::interventions) in the run, before the signal is sent; the payload is not part of it.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_not_found`] if nothing has that id, or if it is that of a hierarchy or a message; if the payload cannot be stored; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the signal may be sent even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{RunId, Scoop, SignalAnswer};
    /// # async fn example(scoop: Scoop, run: RunId) -> Result<(), scoop_operate::OperateError> {
    /// let paid = serde_json::json!({ "amount": 990 });
    /// let answer = scoop.operate().runs().signal_run(run, paid, "the bank has called").source("accounting").await?;
    /// assert_eq!(answer, SignalAnswer::Accepted);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn signal_run(
        &self,
        run: impl Into<RunId>,
        payload: Value,
        note: impl Into<String>,
    ) -> Request<SignalAnswer, OperateError> {
        let about = RequestInfo::new(&self.operate.scoop, run.into(), IdKind::Run, note);
        let operate = self.operate.clone();
        Request::new(about, |about, target| {
            async move { operate.signal(&about, &target, payload).await }.boxed()
        })
    }

    /// The hierarchies of the sets that this message is part of: one for each saga that joins it, none before its set is
    /// complete.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{Handle, Scoop};
    /// # async fn example(scoop: Scoop, payment: Handle) -> Result<(), scoop_operate::OperateError> {
    /// for shipment in scoop.operate().runs().joined(payment.message_id()).await? {
    ///     println!("{}", scoop.find(shipment).await?.wait().await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn joined(
        &self,
        message: Uuid,
    ) -> impl Future<Output = Result<Vec<HierarchyId>, OperateError>> + Send {
        internal::joined(&self.operate.scoop, message).err_into()
    }

    /// The messages that wait for the others of their set, longest first. Await it. See the guide on
    /// `#[subscribes(join(..))]`.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for waiting in scoop.operate().runs().waiting_members().await? {
    ///     println!("{} for {} since {:?}", waiting.topic, waiting.key, waiting.since);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn waiting_members(&self) -> ListRequest<WaitingMember> {
        ListRequest::new(self.operate.database())
    }
}

impl Operate {
    /// Records the request first: a signal without a record would have no sender.
    async fn signal(
        &self,
        about: &RequestInfo,
        target: &RequestTarget,
        payload: Value,
    ) -> Result<SignalAnswer, OperateError> {
        let database = self.required("a signal to a run")?;
        let limit = database.payload_bytes_max;
        let payload = storable(payload, limit, || format!("the signal for run {}", target.lineage.id()))?;
        let Some(to) = database.awaited(about, target, true).await? else {
            return Ok(SignalAnswer::NotAwaiting);
        };
        check_signal(&self.scoop, &to.name, &payload).await?;
        if about.is_dry_run {
            return Ok(SignalAnswer::Accepted);
        }
        let Some(to) = database.awaited(about, target, false).await? else {
            return Ok(SignalAnswer::NotAwaiting);
        };
        let reached = SendSignal::by_operator(self.scoop.clone(), to, payload).await?;
        Ok(if reached > 0 { SignalAnswer::Accepted } else { SignalAnswer::Pending })
    }
}

impl Database {
    /// The signal that the run awaits. Records the request for it, unless it is only checked.
    async fn awaited(
        &self,
        about: &RequestInfo,
        target: &RequestTarget,
        is_checked: bool,
    ) -> Result<Option<SignalKey>, OperateError> {
        let mut asked = about.key();
        asked.is_dry_run |= is_checked;
        let record = |attempt| self.record_signal(target, about.requester(asked.with(attempt)));
        about.trial().run(record).await.map_err(failed("a signal was sent to a run"))
    }
}

/// A message that waits for the others of its set.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WaitingMember {
    /// The saga that joins it, by its first name.
    pub saga: String,
    /// The key that the messages of a set have in common.
    pub key: String,
    /// The topic of the message.
    pub topic: String,
    /// The id of the message.
    pub message: Uuid,
    /// The time since which it waits.
    #[serde(serialize_with = "json::time")]
    pub since: SystemTime,
    /// The time at which it fails to be joined, if it has a limit.
    #[serde(serialize_with = "json::time")]
    pub until: Option<SystemTime>,
    /// Why no set can hold the message, if it was set aside for that: it does not wait any more.
    pub refused: Option<String>,
}

impl ListItem for WaitingMember {
    const STATEMENT: &'static str = JOIN_LIST;
    const DOING: &'static str = "the waiting messages were listed";

    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let until: Option<StoredTime> = row.try_get("expires_at")?;
        Ok(Self {
            saga: row.try_get("saga")?,
            key: row.try_get("key")?,
            topic: row.try_get("topic")?,
            message: row.try_get("message_id")?,
            since: system_time(time(row, "since")?),
            until: until.map(|until| system_time(until.time())),
            refused: row.try_get("refused")?,
        })
    }
}
