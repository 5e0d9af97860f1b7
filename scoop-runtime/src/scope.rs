//! What a step's code holds: its transaction, the means to launch messages, and what it may know
//! about itself and its children.

mod children;

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::panic::Location;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{
    Context, ContextKey, Definition, Emission, Error, Failure, Lineage, Message, Required, Result, Run,
    SLEEP_TOPIC,
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::bug::{Bug, made};
use crate::client::launch_within;
use crate::engine::{Engine, Opened, StopSignal};
use crate::error::{CHAIN_MAX, is_transient_within_step};
use crate::ids;
use crate::launch::{self, Options, launch_options};
use crate::payload::{self, Unstorable};
use crate::store::{Key, Surroundings};
use crate::{RuntimeError, When};

/// What the code of a step may do, and what it may know about itself.
///
/// Nothing that is done through a scope exists before the step has ended well: the transaction
/// is committed together with the messages launched and the record that the step is done.
pub struct Scope<'a> {
    engine: &'a Engine,
    place: Place<'a>,
    context: Context,
    replies: Vec<(String, Value)>,
    opened: Option<Opened>,
    emissions: Vec<Emission>,
}

/// Which call of user code this is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) key: Key,
    pub(crate) surroundings: Surroundings,
    pub(crate) run: &'a Run,
    pub(crate) definition: &'a Definition,
    pub(crate) step: &'a str,
    pub(crate) iteration: u32,
    /// Set in a child failure handler: how often it was called before.
    pub(crate) handler_iteration: Option<u32>,
    pub(crate) attempt: u32,
    pub(crate) outputs: &'a BTreeMap<String, Value>,
    /// Whether it cleans up after what bears the same name.
    pub(crate) cleanup: bool,
}

impl<'a> Place<'a> {
    /// Begins a transaction.
    fn open(self, engine: &'a Engine) -> BoxFuture<'a, Result<Opened>> {
        async move {
            let connections = engine.connections.as_ref().ok_or_else(|| self.in_memory())?;
            connections.begin(&self.definition.saga, self.key.id).await.map_err(|error| {
                let step = self.step;
                Error::infrastructure(format!("no transaction can be had for step `{step}`: {error}"))
            })
        }
        .boxed()
    }

    /// The saga and the step.
    fn code(self) -> (&'a str, &'a str) {
        (&self.definition.saga, self.step)
    }

    /// Why there is no transaction.
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

/// What a call of user code left behind.
pub(crate) struct Remains {
    pub(crate) opened: Option<Opened>,
    pub(crate) emissions: Vec<Emission>,
    pub(crate) context: Context,
    pub(crate) replies: Vec<(String, Value)>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(engine: &'a Engine, place: Place<'a>, context: Context) -> Self {
        Self { engine, place, context, replies: vec![], opened: None, emissions: vec![] }
    }

    /// What comes next cleans up after what was called before, or has failed.
    pub(crate) fn cleans_up(&mut self) {
        self.place.cleanup = true;
    }

    /// The next code cleans up after this step, whose attempts failed in this iteration.
    pub(crate) fn cleans_up_after(&mut self, step: &'a str, iteration: u32) {
        (self.place.step, self.place.iteration) = (step, iteration);
        self.cleans_up();
    }

    pub(crate) fn into_remains(self) -> Remains {
        let Self { opened, emissions, context, replies, .. } = self;
        Remains { opened, emissions, context, replies }
    }

    /// The step's own transaction, opened when it is first asked for.
    ///
    /// What is done through it happens exactly once: it is committed together with the record
    /// that the step is done, or not at all. Begin nested transactions as you like; do not run
    /// `COMMIT` or `ROLLBACK` yourself, the step fails if you do.
    ///
    /// # Errors
    ///
    /// When the pool has no connection in time. The step then runs again later. [In memory](crate::Builder::in_memory)
    /// there is no transaction to be had: the step fails.
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
            self.opened = Some(self.place.open(self.engine).await?);
        }
        let opened = self.opened.as_mut().expect("it was just opened");
        Ok(&mut *opened.transaction)
    }

    /// Launches a message: the next step starts only when every handler of it has finished.
    ///
    /// Nothing happens before the returned builder is awaited, and nobody can see the message
    /// before the step has succeeded. If the message requires a handler and none is subscribed then, the step
    /// fails with `NoHandler` when it ends; the failure has the place of this call.
    ///
    /// # Errors
    ///
    /// When the message cannot be written as JSON, is too large, or contains a NUL character; or when its runs would
    /// have more runs above them than [`Builder::depth_max`](crate::Builder::depth_max) allows.
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
    #[track_caller]
    pub fn detach<'s, M: Message>(&'s mut self, message: M) -> Emit<'s, M> {
        self.emit(message, Some(ids::now_v7()))
    }

    #[track_caller]
    fn emit<'s, M: Message>(&'s mut self, message: M, detached_root: Option<Uuid>) -> Emit<'s, M> {
        Emit {
            engine: self.engine,
            code: self.place.code(),
            context: if detached_root.is_none() { self.context.clone() } else { Context::default() },
            emissions: &mut self.emissions,
            payload: payload::of_message(&message),
            // The ids of a lineage are one more than the runs in it, and the next run has one more.
            depth: if detached_root.is_none() { self.place.run.lineage.ids().len() } else { 1 },
            detached_root,
            options: Options::default(),
            at: Location::caller(),
            message: PhantomData,
        }
    }

    /// Publishes a message that starts a hierarchy of its own, as [`Scope::detach`] does, unless one
    /// with the same topic and key was launched before: then nothing happens. Says whether it was
    /// launched now, and the id of the hierarchy in either case.
    ///
    /// Unlike the others it goes to the database at once, through [`Scope::tx`].
    ///
    /// # Errors
    ///
    /// As [`Scope::launch`] and [`Scope::tx`].
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Invoice { order: u32 }
    /// # impl scoop_core::Message for Invoice { const TOPIC: &'static str = "invoices"; type Reply = (); }
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let (id, launched) = scope.detach_unique(Invoice { order: 7 }, "order 7").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn detach_unique<M: Message>(&mut self, message: M, key: &str) -> Result<(Uuid, bool)> {
        let limit = self.engine.settings().payload_bytes_max;
        let launched = payload::prepare(&message, limit);
        let launched = launched.map_err(|error| Unstorable::in_step(self.place.code(), error))?.unique(key);
        let root = launched.root;
        let store = self.engine.store();
        let launch = launch_within(store, &self.engine.unhandled, self.tx().await?, launched).await;
        let launch = launch.map_err(|error| match error.of_sqlx().is_some_and(is_transient_within_step) {
            true => Error::from(error).into_infrastructure(),
            false => error.into(),
        })?;
        if let Some(opened) = &mut self.opened {
            opened.started.extend(launch.handlers);
        }
        Ok((root, launch.launched > 0))
    }

    /// The element of the context of this type, if there is one.
    ///
    /// The context travels with the run: from whoever launched its message, through its steps, into
    /// what it launches, and through its rollback. It never travels back up.
    ///
    /// # Errors
    ///
    /// If what is stored under its key is something else. The error names the key.
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
    /// let name = scope.get::<Tenant>()?.map_or("nobody".into(), |tenant| tenant.name);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get<K: ContextKey>(&self) -> Result<Option<K>> {
        Ok(self.context.get()?)
    }

    /// Adds an element to the context: for the steps after this one, for what this one launches from
    /// now on, and for the compensations. It is kept even if the step fails.
    ///
    /// # Errors
    ///
    /// If it cannot be stored, if the context would be too large, or if what is stored under its key
    /// is something else. The context stays as it was.
    pub fn set<K: ContextKey>(&mut self, element: K) -> Result<()> {
        let mut context = self.context.clone();
        context.set(element).map_err(|error| Unstorable::in_step(self.place.code(), error.into()))?;
        launch::within(self.engine.settings().context_bytes_max, &context)?;
        self.context = context;
        Ok(())
    }

    /// Takes an element out of the context. Says whether there was one.
    pub fn remove<K: ContextKey>(&mut self) -> bool {
        self.context.remove(K::KEY)
    }

    /// All of the context, the elements that this program does not know included.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Has the next step start no sooner than this: after a time, or at an instant. It returns at
    /// once; nothing is held while the run sleeps, and no restart wakes it.
    ///
    /// # Errors
    ///
    /// If the time lies beyond the year 9999, or the clock of the server cannot be read.
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
        let mut options = Options::default();
        options.not_before(time.into());
        let context = self.context.clone();
        let limit = self.engine.settings().context_bytes_max;
        let context =
            options.context(context, self.handler(), self.engine.store(), Duration::ZERO, limit).await?;
        let (message, topic) = (ids::now_v7(), SLEEP_TOPIC.to_owned());
        let (payload, detached_root, required) = (json!({}), None, None);
        self.emissions.push(Emission { message, topic, payload, detached_root, context, required });
        Ok(())
    }

    /// Gives up here and now if the run has to: if somebody asked for it, or a deadline has passed.
    /// The engine looks by itself before each step and after it; a step that takes long may look
    /// in between. Pass the error on. A function that cleans up because of that looks in vain: it would
    /// fail, too.
    ///
    /// # Errors
    ///
    /// The failure of a run that gives up, with the reasons; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub fn check(&mut self) -> impl Future<Output = Result<()>> + Send {
        async move {
            let Place { key, run, surroundings, step, .. } = self.place;
            let reasons = self.engine.reasons_to_give_up(key, run, surroundings).await.map_err(|error| {
                Error::infrastructure(format!(
                    "whether step `{step}` is to give up could not be read: {error}"
                ))
            })?;
            match reasons.is_empty() {
                true => Ok(()),
                false => Err(Error::failure(Failure::gave_up(&run.source, reasons)).into_permanent()),
            }
        }
        .boxed()
    }

    /// A signal that this run has to give up, to be waited for beside something that takes long.
    /// Then [`Scope::check`] says why.
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
        self.engine.watch(self.place.key)
    }

    /// How many times this step directly preceded itself: 0, then 1 when it is repeated, and so
    /// on. For a compensation, that of the instance it undoes.
    pub fn iteration(&self) -> u32 {
        self.place.iteration
    }

    /// How often the handler of child failures was called before for this step; in any other
    /// function 0.
    pub fn handler_iteration(&self) -> u32 {
        self.place.handler_iteration.unwrap_or(0)
    }

    /// How often this has been tried in vain before: because it failed and is to be retried, or
    /// because the database or its connection did.
    pub fn attempt(&self) -> u32 {
        self.place.attempt
    }

    /// A key for effects outside the database: the same whenever this instance of the step is
    /// run again, after a crash or by another process, and different for every other one. Hand it
    /// to the service that performs the effect, so that it is performed once.
    ///
    /// It is derived from the run, the first name of the step (the oldest in `#[step(was = ["oldest", "older"])]`), and how
    /// often the step has completed in this run. So it stays the same when the program changes between two attempts: when
    /// the step is renamed, or others are inserted before it, removed or reordered.
    ///
    /// ```
    /// # use scoop_runtime::Scope;
    /// # async fn example(scope: &mut Scope<'_>) -> scoop_core::Result<()> {
    /// let request = format!("POST /charges\nIdempotency-Key: {}", scope.idempotency_key());
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotency_key(&self) -> Uuid {
        let Place { definition, handler_iteration, step, run, cleanup, .. } = self.place;
        // A part of a rollback has a name of its own on record, which no other instance has.
        let forward = definition.step_index(step).map(|at| &definition.steps[at]);
        let (step, completions) =
            forward.map_or((step, 0), |step| (step.first_name(), run.completions_of(step)));
        let finally = if cleanup { "#finally" } else { "" };
        let instance = format!("{step}#{completions}#{handler_iteration:?}{finally}");
        Uuid::new_v5(&run.lineage.id(), instance.as_bytes())
    }

    /// The id of the message that is being handled.
    pub fn message_id(&self) -> Uuid {
        self.place.run.message
    }

    /// The place of this run in its hierarchy.
    pub fn lineage(&self) -> &Lineage {
        &self.place.run.lineage
    }

    /// The name of the saga.
    pub fn handler(&self) -> &str {
        &self.place.definition.saga
    }

    /// The name under which this call goes on record.
    pub fn step(&self) -> &str {
        self.place.step
    }

    /// What `step` returned.
    pub(crate) fn output<T>(&self, step: &str, read: fn(&Value) -> serde_json::Result<T>) -> Result<T> {
        self.output_if_any(step, read)?.ok_or_else(|| {
            Error::msg(format!(
                "step `{step}` has not returned anything that `{}` could use; was it skipped? Then take an \
                 `Option` of it",
                self.place.step
            ))
        })
    }

    /// The newest value of a step, under its name or a former one.
    fn returned_by(&self, step: &str) -> Option<&Value> {
        let outputs = self.place.outputs;
        let definition = self.place.definition.steps.iter().find(|it| it.name == step);
        let definition = definition.filter(|_| !made(Bug::ForgetFormerNames));
        let former = definition.map_or(&[][..], |it| it.was).iter().rev();
        outputs.get(step).or_else(|| former.filter_map(|was| outputs.get(*was)).next())
    }

    /// What `step` returned, if it has run.
    pub(crate) fn output_if_any<T>(
        &self,
        step: &str,
        read: fn(&Value) -> serde_json::Result<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.returned_by(step) else {
            return Ok(None);
        };
        read(value).map(Some).map_err(|error| {
            let expected = std::any::type_name::<T>();
            let what = format!("what step `{step}` returned is not a `{expected}` any more");
            Error::from(UnfitValue { what, why: error.to_string(), reply_type: None })
        })
    }
}

/// A stored value that the program at hand cannot read: another version of it may.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub(crate) struct UnfitValue {
    /// Without data.
    pub(crate) what: String,
    pub(crate) why: String,
    /// The message and the type of the reply, if it is one.
    pub(crate) reply_type: Option<String>,
}

impl UnfitValue {
    /// The one in the chain of sources of an error.
    pub(crate) fn of(error: &Error) -> Option<&Self> {
        error.chain().take(CHAIN_MAX).find_map(|cause| cause.downcast_ref())
    }
}

/// A message about to be launched from a step. Await it.
#[must_use = "nothing is launched without `.await`: write `.await?` after it"]
pub struct Emit<'s, M> {
    engine: &'s Engine,
    /// The saga and the step that launch it.
    code: (&'s str, &'s str),
    context: Context,
    emissions: &'s mut Vec<Emission>,
    payload: Result<Value, RuntimeError>,
    /// The depth of its runs in their hierarchy.
    depth: usize,
    detached_root: Option<Uuid>,
    options: Options,
    /// The place of the launch.
    at: &'static Location<'static>,
    message: PhantomData<fn() -> M>,
}

impl<M: Message> Emit<'_, M> {
    launch_options!();

    /// Whether its runs would have too many runs above them.
    fn depth_exceeded(&self) -> Option<Error> {
        let (depth, limit) = (self.depth, self.engine.settings().depth_max);
        let (saga, step) = self.code;
        let (saga, step) = (saga.to_owned(), step.to_owned());
        let error = RuntimeError::DepthExceeded { saga, step, topic: M::TOPIC, depth, limit };
        (depth > limit).then(|| Error::permanent(error))
    }
}

impl<'s, M: Message> IntoFuture for Emit<'s, M> {
    /// The id of the message.
    type Output = Result<Uuid>;
    type IntoFuture = BoxFuture<'s, Result<Uuid>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        async move {
            if let Some(error) = self.depth_exceeded() {
                return Err(error);
            }
            let settings = self.engine.settings();
            let what = || format!("a message for topic `{}`", M::TOPIC);
            let payload = self.payload.map_err(|error| Unstorable::in_step(self.code, error))?;
            let payload = payload::storable(payload, settings.payload_bytes_max, what)?;
            let limit = settings.context_bytes_max;
            let required = M::REQUIRES_HANDLER || self.options.required;
            let required = required.then(|| Required { message: std::any::type_name::<M>(), at: self.at });
            let context = self
                .options
                .context(self.context, self.code.0, self.engine.store(), Duration::ZERO, limit)
                .await
                .map_err(|error| Unstorable::in_step(self.code, error))?;
            let (message, topic, detached_root) = (ids::now_v7(), M::TOPIC.to_owned(), self.detached_root);
            self.emissions.push(Emission { message, topic, payload, detached_root, context, required });
            Ok(message)
        }
        .boxed()
    }
}
