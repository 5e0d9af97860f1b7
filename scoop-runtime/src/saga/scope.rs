//! The scope of a step: its transaction, its launches, and information about itself and its children.

mod children;
mod joins;
pub(crate) mod once;
pub(crate) mod services;

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::panic::Location;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::wait::WaitPlan;
use scoop_core::{
    Context, ContextKey, Definition, Direction, Emission, Error, Failure, FindField, Lineage, Message,
    Required, Result, Run, SentSignal, Signal, SignalKey, StepKind, TraceContext, Wait,
};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use self::services::{StepEffect, StepServices};
use crate::error::ErrorKind;
use crate::error::sqlstate::RolledBack;
use crate::error::{CHAIN_MAX, is_of_infrastructure, is_transient_within_step};
use crate::saga::launch_options::{self, Options, launch_options};
use crate::saga::registry::RunnableSaga;
use crate::saga::signal;
use crate::saga::stop_signal::StopSignal;
use crate::store::{self, ClaimKey, HierarchyFlags, StepTransaction};
use crate::telemetry::trace::{self, with_trace};
use crate::unhandled::insert_in;
use crate::util::ids;
use crate::util::payload::{self, StepName, Unstorable};
use crate::{HierarchyId, RuntimeError, When};

/// The scope of one execution of a step: its transaction, its launches, and information about itself.
///
/// Nothing that is done through a scope exists before the step has succeeded: the transaction is committed together
/// with the launched messages and the record that the step is done.
///
/// # Cancel safety
///
/// Dropping a future of a scope before it is ready adds nothing to the step. Where something may be added, the method says so.
pub struct Scope<'a> {
    services: StepServices<'a>,
    site: CallSite<'a>,
    context: Context,
    replies: Vec<(String, Value)>,
    transaction: Option<StepTransaction>,
    emissions: Vec<Emission>,
    wait: Option<Wait>,
    signals: Vec<SentSignal>,
    /// Whether the beginning of a step that runs at most once is recorded, or may be.
    has_begun: bool,
    ignored: Ignored,
}

/// The first launch or signal that failed in a step. If the code of the step goes on as if it had not, the step fails with it.
#[derive(Default)]
struct Ignored(Option<Error>);

impl Ignored {
    fn remember(&mut self, what: &str, error: &Error, of: StepName<'_>, source: &str) {
        if self.0.is_none() {
            let failure = error.to_failure(source);
            let StepName { saga, step } = of;
            let message =
                format!("step `{step}` of saga `{saga}` ignores the error of {what}: {}", failure.message);
            let ignored = Error::failure(Failure { message, ..failure });
            let ignored = if error.is_permanent() { ignored.into_permanent() } else { ignored };
            let is_of_infrastructure = is_of_infrastructure(error, RolledBack::Nothing);
            self.0 = Some(if is_of_infrastructure { ignored.into_infrastructure() } else { ignored });
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct CallSite<'a> {
    pub(crate) key: ClaimKey,
    pub(crate) flags: HierarchyFlags,
    pub(crate) run: &'a Run,
    pub(crate) definition: &'a Definition,
    pub(crate) saga: &'a RunnableSaga,
    pub(crate) step: &'a str,
    pub(crate) position: usize,
    pub(crate) iteration: u32,
    /// In a child failure handler, the number of its earlier calls for this step.
    pub(crate) handler_iteration: Option<u32>,
    pub(crate) attempt: u32,
    /// Whether a stale prepared statement must not fail the code: it runs again, or at most once.
    pub(crate) needs_fresh_session: bool,
    pub(crate) outputs: &'a BTreeMap<String, Value>,
    /// Whether this is the `finally` of the step of this name.
    pub(crate) cleanup: bool,
}

impl<'a> CallSite<'a> {
    fn open(self, services: StepServices<'a>) -> BoxFuture<'a, Result<StepTransaction>> {
        async move {
            let connections = services.transactions.ok_or_else(|| self.in_memory())?;
            let begun = connections.begin(&self.definition.saga, self.key.id, self.needs_fresh_session);
            begun.await.map_err(|error| {
                let step = self.step;
                Error::infrastructure(format!("step `{step}` could not begin a transaction: {error}"))
            })
        }
        .boxed()
    }

    /// Has a launch of the step recorded if it is the first one on this topic.
    fn note_launch(self, services: StepServices<'_>, topic: &str) {
        if let Some(launch) = self.saga.note_launch(self.position, topic) {
            services.engine.apply(StepEffect::Launched(launch));
        }
    }

    fn step_name(self) -> StepName<'a> {
        StepName { saga: &self.definition.saga, step: self.step }
    }

    /// Refuses a launch that the step does not declare, if it declares any.
    fn check_declared(self, topic: &str, message: &str) -> Result<()> {
        if self.saga.admits_launch(self.position, topic) {
            return Ok(());
        }
        let message = match message {
            UNTYPED => "the type of such messages".to_owned(),
            message => format!("`{message}`"),
        };
        Err(Error::permanent(self.saga.undeclared_launch(self.position, topic, message)))
    }

    /// The error for a transaction in memory.
    fn in_memory(self) -> Error {
        let Self { run, definition, step, .. } = self;
        let text = format!(
            "step `{step}` of saga `{}` asks for a transaction, but this program runs in memory, without a \
             database; hand what it needs over with `.provide(..)`, so that a test can give it something else, \
             or run it on `.postgres(pool)` or `.embedded()`",
            definition.saga,
        );
        Error::failure(Failure::new("NoDatabase", text, &run.source)).into_permanent()
    }
}

pub(crate) struct ScopeOutput {
    pub(crate) transaction: Option<StepTransaction>,
    pub(crate) emissions: Vec<Emission>,
    pub(crate) context: Context,
    pub(crate) replies: Vec<(String, Value)>,
    pub(crate) wait: Option<Wait>,
    pub(crate) signals: Vec<SentSignal>,
    pub(crate) has_begun: bool,
    /// The error of a launch or a signal that the code has ignored, unless it has failed itself.
    pub(crate) ignored: Option<Error>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(services: StepServices<'a>, site: CallSite<'a>, context: Context) -> Self {
        Self {
            services,
            site,
            context,
            replies: vec![],
            transaction: None,
            emissions: vec![],
            wait: None,
            signals: vec![],
            has_begun: false,
            ignored: Ignored::default(),
        }
    }

    /// The next call is the `finally` of the step that was called before.
    pub(crate) fn cleans_up(&mut self) {
        self.site.cleanup = true;
    }

    /// The next call is the `finally` of the step at this position, whose attempts failed in this iteration.
    pub(crate) fn cleans_up_after(&mut self, position: usize, iteration: u32) {
        let site = &mut self.site;
        (site.position, site.iteration) = (position, iteration);
        site.step = &site.definition.steps[position].name;
        self.cleans_up();
    }

    pub(crate) fn into_output(self) -> ScopeOutput {
        let Self {
            transaction: opened, emissions, context, replies, wait, signals, has_begun, ignored, ..
        } = self;
        ScopeOutput {
            transaction: opened,
            emissions,
            context,
            replies,
            wait,
            signals,
            has_begun,
            ignored: ignored.0,
        }
    }

    /// The step's own transaction, opened by the first call.
    ///
    /// Its effects happen exactly once: they are committed together with the record that the step is done, or not at
    /// all. Nested transactions are possible. The step fails if its code runs `COMMIT` or `ROLLBACK` itself.
    ///
    /// # Errors
    ///
    /// If the pool has no connection in time. The step is then retried after a pause. There is no transaction in
    /// memory, where the step fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves the scope unchanged; a transaction that was being opened is
    /// rolled back.
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
        if self.transaction.is_none() {
            self.transaction = Some(self.site.open(self.services).await?);
        }
        let opened = self.transaction.as_mut().expect("it was just opened");
        Ok(&mut *opened.transaction)
    }

    /// Launches a message. The next step starts only when every handler of the message has finished.
    ///
    /// Nothing happens before the returned builder is awaited, and the message is visible to others only after the
    /// step has succeeded. If the message requires a handler and none is subscribed then, the step fails with
    /// `NoHandler` when it ends; the failure names the place of this call.
    ///
    /// # Errors
    ///
    /// If the message cannot be written as JSON, is too large, or contains a NUL character; if its runs would
    /// exceed [`Limits::depth_max`](crate::Limits::depth_max); or if the step declares its launches without it. A step that ignores such an error fails with it when it ends.
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
    #[track_caller]
    pub fn launch<M: Message>(&mut self, message: M) -> Emit<'_> {
        self.emit(EmittedMessage::of(&message), None)
    }

    /// Launches a message given by its topic and its JSON, as [`launch`](Self::launch) does with one of a type. For sagas
    /// that do not have the types of the messages, such as one that passes on what others ask for; nothing checks that the
    /// handlers can read the JSON.
    ///
    /// # Errors
    ///
    /// As [`Scope::launch`]. [`RuntimeError::is_invalid`] if the topic is empty, has more than 63 bytes or a NUL character.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// scope.launch_untyped("courier", serde_json::json!({ "order": 7 })).required().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn launch_untyped(&mut self, topic: impl Into<String>, payload: Value) -> Emit<'_> {
        self.emit(EmittedMessage::untyped(topic.into(), payload), None)
    }

    /// Launches a message that starts a hierarchy of its own: the step does not wait for it, and the rollback of this
    /// saga does not affect it. Like everything in a step, the message exists once the step has succeeded.
    ///
    /// # Errors
    ///
    /// As [`Scope::launch`].
    #[track_caller]
    pub fn detach<M: Message>(&mut self, message: M) -> Emit<'_> {
        self.emit(EmittedMessage::of(&message), Some(ids::now_v7()))
    }

    #[track_caller]
    fn emit(&mut self, mut message: EmittedMessage, detached_root: Option<Uuid>) -> Emit<'_> {
        let of_program = || self.services.settings.default_wait.clone();
        let wait = message.wait.take().or_else(|| self.site.saga.handler.wait()).or_else(of_program);
        // What belongs to a rollback is not cancelled.
        let in_rollback = self.site.flags.direction(self.site.run) == Direction::Backward;
        Emit {
            services: self.services,
            site: self.site,
            context: if detached_root.is_none() { self.context.clone() } else { Context::default() },
            emissions: &mut self.emissions,
            ignored: Some((&mut self.ignored, &self.site.run.source)),
            message,
            // A lineage has one id more than runs, and the child is one run deeper.
            depth: if detached_root.is_none() { self.site.run.lineage.ids().len() } else { 1 },
            detached_root,
            options: Options::default(),
            wait,
            has_choice: detached_root.is_none() && !in_rollback,
            at: Location::caller(),
        }
    }

    /// Launches a message as [`Scope::detach`] does, unless a message with the same topic and key was launched
    /// before: then nothing happens.
    ///
    /// Unlike the other launches, this one is sent to the database at once, through [`Scope::tx`].
    ///
    /// # Errors
    ///
    /// As [`Scope::launch`] and [`Scope::tx`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may be part of the step's transaction.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Invoice { order: u32 }
    /// # impl scoop_core::Message for Invoice { const TOPIC: &'static str = "invoices"; type Reply = (); }
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let invoice = scope.detach_unique(Invoice { order: 7 }, "order 7").await?;
    /// println!("{} of {}", if invoice.is_new { "launched" } else { "launched before" }, invoice.hierarchy);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn detach_unique<M: Message>(&mut self, message: M, key: &str) -> Result<UniqueLaunch> {
        let launched = self.launch_unique(message, key).await;
        launched.inspect_err(|error| {
            self.ignored.remember("a launch", error, self.site.step_name(), &self.site.run.source);
        })
    }

    async fn launch_unique<M: Message>(&mut self, message: M, key: &str) -> Result<UniqueLaunch> {
        self.site.check_declared(M::TOPIC, std::any::type_name::<M>())?;
        let limit = self.services.settings.limits.payload_bytes_max;
        let launched = store::prepare(&message, limit);
        let launched =
            launched.map_err(|error| Unstorable::in_step(self.site.step_name(), error))?.unique(key);
        let bytes_max = self.services.settings.limits.context_bytes_max;
        let launched = launched.with(with_trace(Context::default(), trace::current().as_ref(), bytes_max));
        let root = launched.root;
        self.site.note_launch(self.services, M::TOPIC);
        let store = self.services.store;
        let launch = insert_in(store, self.services.unhandled, self.tx().await?, launched).await;
        let launch =
            launch.map_err(|error| match error.kind().of_sqlx().is_some_and(is_transient_within_step) {
                true => Error::from(error).into_infrastructure(),
                false => error.into(),
            })?;
        if let Some(opened) = &mut self.transaction {
            opened.ready_handlers.extend(launch.handlers);
        }
        Ok(UniqueLaunch { hierarchy: root.into(), is_new: launch.launched > 0 })
    }

    /// The element of this type in the context, if there is one.
    ///
    /// A run inherits the context from the step or client that launched its message. The context applies to the steps
    /// of the run, to the messages that they launch, and to the rollback. It is never passed back to a parent run.
    ///
    /// # Errors
    ///
    /// If the value stored under its key is of another type. The error names the key.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # use scoop_core::ContextKey;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Tenant { name: String }
    /// # impl ContextKey for Tenant { const KEY: &'static str = "Tenant"; }
    ///
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let name = scope.get::<Tenant>()?.map_or("anonymous".into(), |tenant| tenant.name);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get<K: ContextKey>(&self) -> Result<Option<K>> {
        Ok(self.context.get()?)
    }

    /// Adds an element to the context: for the later steps, for messages that this step launches from now on, and for
    /// the compensations. It is kept even if the step fails.
    ///
    /// # Errors
    ///
    /// If the element cannot be stored, if the context would be too large, or if the value stored under its key is of
    /// another type. The context is then unchanged.
    pub fn set<K: ContextKey>(&mut self, element: K) -> Result<()> {
        let mut context = self.context.clone();
        context.set(element).map_err(|error| Unstorable::in_step(self.site.step_name(), error.into()))?;
        launch_options::check_context_size(self.services.settings.limits.context_bytes_max, &context)?;
        self.context = context;
        Ok(())
    }

    /// Removes an element from the context. Returns whether there was one.
    pub fn remove<K: ContextKey>(&mut self) -> bool {
        self.context.remove(K::KEY)
    }

    /// The trace context to hand on to other services, as the headers of a request to them: that of the current span with the
    /// feature `opentelemetry` and a tracer; otherwise that with which the message of this run was launched.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let mut request = "POST /charges HTTP/1.1".to_owned();
    /// if let Some(trace) = scope.trace_context() {
    ///     request += &format!("\ntraceparent: {}", trace.traceparent());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn trace_context(&self) -> Option<TraceContext> {
        trace::current().or_else(|| self.context.trace_context().ok().flatten())
    }

    /// The whole context, including elements that this program does not know.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Delays the next step: it starts no sooner than after this time, or at this instant. The call returns at once.
    /// Of several sleeps in one step the latest counts. While the run sleeps it holds no task and no connection, and it
    /// survives restarts.
    ///
    /// # Errors
    ///
    /// If the time is beyond the year 9999, or the clock of the server cannot be read.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # use std::time::Duration;
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// scope.sleep(Duration::from_secs(14 * 24 * 60 * 60)).await?;    // the next step: in two weeks
    /// # Ok(())
    /// # }
    /// ```
    pub async fn sleep(&mut self, time: impl Into<When>) -> Result<()> {
        let until = launch_options::wake_up_time(time.into(), self.services.store).await?;
        let wait = Wait::until(until);
        self.wait = Some(match self.wait.take() {
            Some(other) => other.and(wait),
            None => wait,
        });
        Ok(())
    }

    /// Sends a signal to the runs that await it with this key, as [`Scoop::signal`](crate::Scoop::signal) does. It exists
    /// once the step has succeeded.
    ///
    /// # Errors
    ///
    /// As [`Scoop::signal`](crate::Scoop::signal), except for those of the database. A step that ignores such an error fails
    /// with it when it ends.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Packed { boxes: u32 }
    /// # impl scoop_core::Signal for Packed {
    /// #     const NAME: &'static str = "packed";
    /// #     const RETENTION: std::time::Duration = std::time::Duration::from_secs(60);
    /// # }
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// scope.signal(Packed { boxes: 2 }, "order 7")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal<S: Signal>(&mut self, signal: S, key: impl Into<String>) -> Result<()> {
        let limit = self.services.settings.limits.payload_bytes_max;
        let signal = signal::prepare(&signal, key.into(), limit).map_err(Error::permanent);
        let signal = signal.inspect_err(|error| {
            self.ignored.remember("a signal", error, self.site.step_name(), &self.site.run.source);
        })?;
        self.signals.push(SentSignal { trace: self.trace_context(), ..signal });
        Ok(())
    }

    /// Has the run wait for a signal, for this time at most.
    pub(crate) async fn await_signal(&mut self, awaited: Awaited, within: Option<Duration>) -> Result<()> {
        let Awaited { name, key } = awaited;
        let signal = SignalKey { name: name.to_owned(), key };
        if let Some(why) = signal.refused() {
            return Err(Error::msg(format!("the signal `{name}` cannot be awaited: {why}")).into_permanent());
        }
        let limit = match within {
            Some(within) => Some(launch_options::wake_up_time(within.into(), self.services.store).await?),
            None => None,
        };
        self.wait = Some(Wait::for_signal(signal, limit));
        Ok(())
    }

    /// Returns an error if the run has to give up, since it was cancelled or has missed a deadline. The engine checks
    /// this before and after each step; a long step may check in between. Pass the error on. Do not call it from
    /// cleanup code: it would fail again.
    ///
    /// # Errors
    ///
    /// The failure of a run that gives up, with the reasons; or an error if the database fails.
    pub fn check(&mut self) -> impl Future<Output = Result<()>> + Send {
        async move {
            let CallSite { key, run, flags, step, .. } = self.site;
            let asked = self.services.store.give_up_reasons(key).await.map_err(|error| {
                Error::infrastructure(format!(
                    "the cancellation state of step `{step}` could not be read: {error}"
                ))
            })?;
            let reasons = asked.map_or_else(Vec::new, |asked| asked.failures(run, flags));
            match reasons.is_empty() {
                true => Ok(()),
                false => Err(Error::failure(Failure::gave_up(&run.source, reasons)).into_permanent()),
            }
        }
        .boxed()
    }

    /// A signal that is raised when this run has to give up. It can be awaited beside a long operation.
    /// [`Scope::check`] then returns the reason.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// # async fn something_long() {}
    /// let stop = scope.stop_signal();
    /// tokio::select! {
    ///     () = something_long() => {}
    ///     () = stop.raised() => scope.check().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop_signal(&self) -> StopSignal {
        self.services.engine.stop_signal(self.site.key)
    }

    /// The number of times that this step directly preceded itself: 0, then 1 when it is repeated, and so on. In a
    /// compensation it is that of the step execution which it compensates.
    pub fn iteration(&self) -> u32 {
        self.site.iteration
    }

    /// The number of earlier calls of the child failure handler for this step; 0 in any other function.
    pub fn handler_iteration(&self) -> u32 {
        self.site.handler_iteration.unwrap_or(0)
    }

    /// The number of this execution of the run, as trees show it: 1, and one more each time that the run continues as new.
    pub fn execution(&self) -> u32 {
        self.site.run.execution.number.saturating_add(1)
    }

    /// The number of failed attempts before this one: the step failed and is retried, or the database or its
    /// connection failed.
    pub fn attempt(&self) -> u32 {
        self.site.attempt
    }

    /// An idempotency key for effects outside the database. It is the same whenever this step execution is repeated,
    /// after a crash or by another process, and different for every other one. Pass it to the service that performs
    /// the effect, so that the effect is performed once.
    ///
    /// The key is derived from the run, the first name of the step, and the number of times that the step has
    /// completed in this execution of the run, and the number of that. So it stays the same when a new version of the program renames the step, or inserts,
    /// removes or reorders other steps. The first name is the oldest one in `#[step(was = ["oldest", "older"])]`.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let request = format!("POST /charges\nIdempotency-Key: {}", scope.idempotency_key());
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotency_key(&self) -> Uuid {
        let CallSite { definition, handler_iteration, step, run, cleanup, .. } = self.site;
        // The recorded name of a part of a rollback is unique in the run.
        let forward = definition.step_index(step).map(|at| &definition.steps[at]);
        let (step, completions) =
            forward.map_or((step, 0), |step| (step.first_name(), run.completions_of(step)));
        let finally = if cleanup { "#finally" } else { "" };
        // Counts of completions begin with each execution.
        let execution = match run.execution.number {
            number if number > 0 && !run.is_backward() => format!("#execution {number}"),
            _ => String::new(),
        };
        let instance = format!("{step}#{completions}#{handler_iteration:?}{finally}{execution}");
        Uuid::new_v5(&run.lineage.id(), instance.as_bytes())
    }

    /// The id of the message that this run handles. It is the same in all executions of a run that continues as new.
    pub fn message_id(&self) -> Uuid {
        self.site.run.message
    }

    /// The lineage of this run: the ids of its ancestors and its own id.
    pub fn lineage(&self) -> &Lineage {
        &self.site.run.lineage
    }

    /// The name of the saga.
    pub fn handler(&self) -> &str {
        &self.site.definition.saga
    }

    /// The recorded name of this call.
    pub fn step(&self) -> &str {
        self.site.step
    }

    /// Decodes the value that `step` returned.
    pub(crate) fn output<T>(&self, step: &str, read: fn(&Value) -> serde_json::Result<T>) -> Result<T> {
        self.output_if_any(step, read)?.ok_or_else(|| {
            Error::msg(format!(
                "step `{step}` has not returned anything that `{}` could use; was it skipped? Then take an \
                 `Option` of it",
                self.site.step
            ))
        })
    }

    fn returned_by(&self, step: &str) -> Option<&Value> {
        let outputs = self.site.outputs;
        let definition = self.site.definition.steps.iter().find(|it| it.name == step);
        let former = definition.map_or(&[][..], |it| it.was).iter().rev();
        outputs.get(step).or_else(|| former.filter_map(|was| outputs.get(*was)).next())
    }

    /// Decodes the value that `step` returned, if it has run.
    pub(crate) fn output_if_any<T>(
        &self,
        step: &str,
        read: fn(&Value) -> serde_json::Result<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.returned_by(step) else {
            return Ok(None);
        };
        let wait = self.site.definition.steps.iter().find(|it| it.name == step && it.kind == StepKind::Wait);
        let signal = wait.and_then(|wait| wait.awaits);
        let unfit = |why: String| {
            let expected = std::any::type_name::<T>();
            let what = match signal {
                Some(signal) => format!("the signal `{signal}` is not a `{expected}`"),
                None => format!("what step `{step}` returned is not a `{expected}` any more"),
            };
            let signal = wait.zip(signal).map(|(wait, name)| UnfitSignal {
                name: name.to_owned(),
                steps: wait.all_names().map(str::to_owned).collect(),
                expected: expected.to_owned(),
            });
            Error::from(UnfitValue { what, why, reply_type: None, signal })
        };
        match value.get(UNREADABLE).and_then(Value::as_str).filter(|_| signal.is_some()) {
            Some(why) => Err(unfit(why.to_owned())),
            None => read(value).map(Some).map_err(|error| unfit(error.to_string())),
        }
    }
}

/// A stored value that this program cannot decode. Another version of the program may be able to.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub(crate) struct UnfitValue {
    pub(crate) what: String,
    pub(crate) why: String,
    /// The message and the type of the reply, if it is one.
    pub(crate) reply_type: Option<String>,
    /// The signal, if it is one.
    pub(crate) signal: Option<UnfitSignal>,
}

/// A signal that the type of a step cannot read.
#[derive(Clone, Debug)]
pub(crate) struct UnfitSignal {
    pub(crate) name: String,
    pub(crate) steps: Vec<String>,
    pub(crate) expected: String,
}

/// The only field of a signal that no program can read: see `signal_deliver.sql`.
const UNREADABLE: &str = "scoop:unreadable";

impl UnfitValue {
    /// Finds it in the chain of sources of an error.
    pub(crate) fn find_in(error: &Error) -> Option<&Self> {
        error.chain().take(CHAIN_MAX).find_map(|cause| cause.downcast_ref())
    }
}

/// The result of [`Scope::detach_unique`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UniqueLaunch {
    /// The hierarchy of the message with this topic and key.
    pub hierarchy: HierarchyId,
    /// Whether the message was launched now. False if a message with the same topic and key was launched before.
    pub is_new: bool,
}

/// A message about to be launched from a step. Await it.
#[must_use = "nothing is launched without `.await`: write `.await?` after it"]
pub struct Emit<'s> {
    services: StepServices<'s>,
    site: CallSite<'s>,
    context: Context,
    emissions: &'s mut Vec<Emission>,
    /// What remembers an error, and the source of the run.
    ignored: Option<(&'s mut Ignored, &'s str)>,
    message: EmittedMessage,
    /// The depth of its runs in their hierarchy.
    depth: usize,
    detached_root: Option<Uuid>,
    options: Options,
    wait: Option<WaitPlan>,
    has_choice: bool,
    at: &'static Location<'static>,
}

/// What launches a message without a type.
const UNTYPED: &str = "Scope::launch_untyped";

struct EmittedMessage {
    topic: String,
    payload: Result<Value, RuntimeError>,
    /// Its Rust type, or what launches it without one.
    of: &'static str,
    requires_handler: bool,
    /// The fields by which its runs are found, if they are known by its type.
    find_by: Option<&'static [FindField]>,
    wait: Option<WaitPlan>,
}

impl EmittedMessage {
    fn of<M: Message>(message: &M) -> Self {
        Self {
            topic: M::TOPIC.to_owned(),
            payload: payload::of_message(message),
            of: std::any::type_name::<M>(),
            requires_handler: M::REQUIRES_HANDLER,
            find_by: Some(M::FIND_BY),
            wait: M::wait(),
        }
    }

    fn untyped(topic: String, payload: Value) -> Self {
        let payload = payload::check_topic(&topic, UNTYPED).map(|()| payload);
        Self { topic, payload, of: UNTYPED, requires_handler: false, find_by: None, wait: None }
    }
}

impl Emit<'_> {
    launch_options!();

    /// Waits by this strategy in place of that of the message, the saga or the program: for some of the handlers, or for a
    /// time. Without any of these, the saga waits for all handlers that are registered when the message is launched. A detached
    /// message is never waited for, also with a strategy; and what belongs to a rollback waits for all handlers.
    ///
    /// # Errors
    ///
    /// The launch fails if the parameters of the strategy are a mistake, such as those of `AtLeast(0)`, or if its limit is later
    /// than the deadline of the message.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use scoop_runtime as scoop;
    /// # use scoop_core::wait::{AtLeast, WaitStrategy};
    /// # async fn example(scope: &mut scoop::Scope<'_>) -> scoop_core::Result<()> {
    /// let ask = serde_json::json!({ "item": 7 });
    /// scope.launch_untyped("quotes.ask", ask).wait(AtLeast(2).within(Duration::from_secs(10))).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(mut self, plan: impl Into<WaitPlan>) -> Self {
        self.wait = Some(plan.into());
        self
    }

    fn depth_exceeded(&self) -> Option<Error> {
        let (depth, limit) = (self.depth, self.services.settings.limits.depth_max);
        if depth <= limit {
            return None;
        }
        let StepName { saga, step } = self.site.step_name();
        let (saga, step, topic) = (saga.to_owned(), step.to_owned(), self.message.topic.clone());
        Some(Error::permanent(RuntimeError::from(ErrorKind::DepthExceeded {
            saga,
            step,
            topic,
            depth,
            limit,
        })))
    }
}

impl<'s> IntoFuture for Emit<'s> {
    type Output = Result<Uuid>;
    type IntoFuture = BoxFuture<'s, Result<Uuid>>;

    #[track_caller]
    fn into_future(mut self) -> Self::IntoFuture {
        async move {
            let (ignored, step) = (self.ignored.take(), self.site.step_name());
            let launched = self.launched().await;
            if let (Err(error), Some((ignored, source))) = (&launched, ignored) {
                ignored.remember("a launch", error, step, source);
            }
            launched
        }
        .boxed()
    }
}

impl Emit<'_> {
    async fn launched(self) -> Result<Uuid> {
        self.site.check_declared(&self.message.topic, self.message.of)?;
        if let Some(error) = self.depth_exceeded() {
            return Err(error);
        }
        let (settings, step) = (self.services.settings, self.site.step_name());
        let EmittedMessage { topic, payload, of, requires_handler, find_by, .. } = self.message;
        let what = || format!("a message for topic `{topic}`");
        let payload = payload.map_err(|error| Unstorable::in_step(step, error))?;
        let payload = payload::storable(payload, settings.limits.payload_bytes_max, what)?;
        let found_by = match find_by {
            Some(fields) => store::found_by(&topic, fields, &payload)?,
            None => {
                let fields = self.services.store.find_fields(&topic).await;
                let fields = fields.map_err(RuntimeError::database("fields to find by were looked up"))?;
                store::found_by_registered(&topic, &fields, &payload)?
            }
        };
        let limit = settings.limits.context_bytes_max;
        let wait = self.wait.filter(|plan| self.has_choice && !plan.is_default());
        let wait = match wait {
            Some(plan) => {
                let (deadlines, store) = (self.options.forward_deadlines(), self.services.store);
                Some(launch_options::stored_wait(plan, deadlines, step, &topic, store, limit).await?)
            }
            None => None,
        };
        let required = requires_handler || self.options.required;
        let required = required.then_some(Required { message: of, at: self.at });
        let context = self
            .options
            .context(self.context, step.saga, self.services.store, Duration::ZERO, limit)
            .await
            .map_err(|error| Unstorable::in_step(step, error))?;
        let wait = wait.map(|plan| plan.with_deadlines(context.give_up_at(Direction::Forward)));
        self.site.note_launch(self.services, &topic);
        let (message, detached_root) = (ids::now_v7(), self.detached_root);
        self.emissions.push(Emission {
            message,
            topic,
            payload,
            detached_root,
            context,
            required,
            wait,
            found_by,
        });
        Ok(message)
    }
}

/// The signal that a step awaits.
#[derive(Debug)]
pub struct Awaited {
    pub(crate) name: &'static str,
    pub(crate) key: String,
}
