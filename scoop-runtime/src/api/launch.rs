//! Launches of messages by a client.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Context, Message};
use sqlx::PgConnection;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::handle::{Begun, Handle};
use super::scoop::Scoop;
use crate::RuntimeError;
use crate::completion::StartedAs;
use crate::saga::launch_options::{Options, capacity_option, launch_options};
use crate::store::{self, NewMessage, Unhandled};
use crate::telemetry::{self, trace};
use crate::unhandled::insert_in;
use crate::util::detached::run_to_completion;
use crate::util::payload::check_topic;
use crate::util::retries::GivenUp;

/// A message about to be launched. Await it.
#[must_use = "nothing is launched without `.await`: write `.await?` after it"]
pub struct Launch<M, H = Handle> {
    scoop: Scoop,
    message: M,
    key: Option<String>,
    options: Options,
    /// For how long the launch waits for room in a queue.
    capacity_within: Option<Duration>,
    handle: PhantomData<fn() -> H>,
}

impl<M: Message, H: From<Handle>> Launch<M, H> {
    pub(crate) fn new(scoop: Scoop, message: M) -> Self {
        Self {
            scoop,
            message,
            key: None,
            options: Options::default(),
            capacity_within: None,
            handle: PhantomData,
        }
    }

    launch_options!();

    /// Launches the message only if none was launched on this topic with this key before. Otherwise the handle is
    /// that of the earlier message, and [says so](Handle::is_of_earlier_launch). So the launch can be repeated when its outcome
    /// is unknown.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let first = scoop.launch(OrderPlaced { order: 7 }).unique("order 7").await?;
    /// let again = scoop.launch(OrderPlaced { order: 7 }).unique("order 7").await?;
    /// assert_eq!(first.id(), again.id());
    /// # Ok(())
    /// # }
    /// ```
    pub fn unique(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    capacity_option!();

    /// Launches the message in a transaction of the caller: the message exists exactly if that commits. If the queue of a saga
    /// with a limit is full, it is refused at once.
    ///
    /// # Errors
    ///
    /// As [`Scoop::launch`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may be part of the transaction. Roll that back.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop, pool: sqlx::PgPool) -> scoop_core::Result<()> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("INSERT INTO orders VALUES (7)").execute(&mut *tx).await?;
    /// let order = scoop.launch(OrderPlaced { order: 7 }).in_transaction(&mut tx).await?;
    /// tx.commit().await?;
    /// order.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn in_transaction(self, connection: &mut PgConnection) -> Result<H, RuntimeError> {
        let (scoop, launched, span) = self.prepare().await?;
        let (root, id) = (launched.root, launched.id);
        let is_earlier = insert_admitted(&scoop, connection, launched).instrument(span).await?;
        // A foreign transaction commits without a notification; poll soon.
        scoop.poll_for_foreign_commit();
        Ok(Handle::new(scoop, root, id).found_earlier(Some(is_earlier)).into())
    }

    /// Prepares the message for the store: checks its size, and adds key and context.
    async fn prepare(self) -> Result<(Scoop, NewMessage, Span), RuntimeError> {
        let Self { scoop, message, key, options, .. } = self;
        let launched = store::prepare(&message, scoop.limits().payload_bytes_max)?;
        let required = options.required.then(std::any::type_name::<M>);
        complete(scoop, launched, Extras { key, options, required }).await
    }
}

impl<M: Message, H: From<Handle> + 'static> IntoFuture for Launch<M, H> {
    type Output = Result<H, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let within = self.capacity_within;
            let (scoop, launched, span) = self.prepare().await?;
            let (root, id, is_unique) = (launched.root, launched.id, launched.is_unique);
            let start =
                publish(&scoop, vec![launched], within, "a message was launched").instrument(span).await?;
            let is_local = scoop.engine().is_some_and(|engine| engine.has_handlers_of(M::TOPIC));
            let begun = is_local.then(|| Begun { at: Instant::now(), start });
            let launched = Handle::new(scoop, root, id).started_locally(begun);
            Ok(launched.found_earlier(is_of_earlier(start, is_unique)).into())
        }
        .boxed()
    }
}

/// A message without a Rust type about to be launched. Await it for its [`Handle`].
#[must_use = "nothing is launched without `.await`: write `.await?` after it"]
pub struct LaunchUntyped {
    scoop: Scoop,
    topic: String,
    payload: serde_json::Value,
    key: Option<String>,
    options: Options,
    capacity_within: Option<Duration>,
}

impl LaunchUntyped {
    /// The launcher, as errors name it.
    const LAUNCHER: &'static str = "Scoop::launch_untyped";

    pub(crate) fn new(scoop: Scoop, topic: String, payload: serde_json::Value) -> Self {
        Self { scoop, topic, payload, key: None, options: Options::default(), capacity_within: None }
    }

    launch_options!();

    /// Launches the message only if none was launched on this topic with this key before, as [`Launch::unique`].
    pub fn unique(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    capacity_option!();

    /// Launches the message in a transaction of the caller: it exists exactly if that commits. If the queue of a saga with a limit
    /// is full, it is refused at once.
    ///
    /// # Errors
    ///
    /// As [`Scoop::launch_untyped`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may be part of the transaction. Roll that back.
    pub async fn in_transaction(self, connection: &mut PgConnection) -> Result<Handle, RuntimeError> {
        let (scoop, launched, span) = self.prepare().await?;
        let (root, id) = (launched.root, launched.id);
        let is_earlier = insert_admitted(&scoop, connection, launched).instrument(span).await?;
        scoop.poll_for_foreign_commit();
        Ok(Handle::new(scoop, root, id).found_earlier(Some(is_earlier)))
    }

    async fn prepare(self) -> Result<(Scoop, NewMessage, Span), RuntimeError> {
        let Self { scoop, topic, payload, key, options, .. } = self;
        let limits = scoop.limits();
        let bytes_max = limits.payload_bytes_max;
        check_topic(&topic, Self::LAUNCHER)?;
        let fields = scoop.retrying(|_| scoop.store().find_fields(&topic)).await;
        let fields = fields.map_err(GivenUp::error("a message was launched"))?;
        let launched = store::prepare_untyped(topic, payload, bytes_max, &fields)?;
        let required = options.required.then_some(Self::LAUNCHER);
        complete(scoop, launched, Extras { key, options, required }).await
    }
}

impl IntoFuture for LaunchUntyped {
    type Output = Result<Handle, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let within = self.capacity_within;
            let (scoop, launched, span) = self.prepare().await?;
            let (root, id, is_unique) = (launched.root, launched.id, launched.is_unique);
            let topic = launched.topic.clone();
            let start =
                publish(&scoop, vec![launched], within, "a message was launched").instrument(span).await?;
            let is_local = scoop.engine().is_some_and(|engine| engine.has_handlers_of(&topic));
            let begun = is_local.then(|| Begun { at: Instant::now(), start });
            let launched = Handle::new(scoop, root, id).started_locally(begun);
            Ok(launched.found_earlier(is_of_earlier(start, is_unique)))
        }
        .boxed()
    }
}

/// Whether the message was there before the launch; none if the launch may have launched it. Only a unique one may have been there.
fn is_of_earlier(start: StartedAs, is_unique: bool) -> Option<bool> {
    match start {
        StartedAs::Earlier => Some(true),
        StartedAs::Found if is_unique => None,
        StartedAs::Found | StartedAs::SingleLocalRun(_) | StartedAs::Other => Some(false),
    }
}

/// What a launch adds to its message.
struct Extras {
    key: Option<String>,
    options: Options,
    /// What requires a handler, for the error.
    required: Option<&'static str>,
}

/// Adds the key, the context and the requirement of a handler to a message. Begins the span of its launch.
async fn complete(
    scoop: Scoop,
    mut launched: NewMessage,
    extras: Extras,
) -> Result<(Scoop, NewMessage, Span), RuntimeError> {
    let Extras { key, mut options, required } = extras;
    if let Some(key) = key {
        launched = launched.unique(&key);
    }
    launched.required = required.or(launched.required);
    let limits = scoop.limits();
    let (context, limit) = (Context::default(), limits.context_bytes_max);
    let span = telemetry::launch_span(&launched.topic, Some(launched.root), 1, options.trace.as_ref());
    options.trace = trace::of(&span).or(options.trace);
    let context = options.context(context, "client", scoop.store(), scoop.retry_for(), limit).await?;
    Ok((scoop, launched.with(context), span))
}

/// Many messages about to be launched in one transaction. Await it.
#[must_use = "nothing is launched without `.await`: write `.await?` after it"]
pub struct LaunchAll {
    scoop: Scoop,
    prepared: Result<Vec<NewMessage>, RuntimeError>,
    topic: &'static str,
    /// The Rust type of the messages.
    message: &'static str,
    options: Options,
    capacity_within: Option<Duration>,
}

impl LaunchAll {
    pub(crate) fn new(
        scoop: Scoop,
        prepared: Result<Vec<NewMessage>, RuntimeError>,
        topic: &'static str,
        message: &'static str,
    ) -> Self {
        Self { scoop, prepared, topic, message, options: Options::default(), capacity_within: None }
    }

    launch_options!();
    capacity_option!();
}

impl IntoFuture for LaunchAll {
    type Output = Result<Vec<Handle>, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let Self { scoop, prepared, topic, message, mut options, capacity_within } = self;
            let mut prepared = prepared?;
            let limits = scoop.limits();
            let span = telemetry::launch_span(topic, None, prepared.len(), options.trace.as_ref());
            options.trace = trace::of(&span).or(options.trace);
            if options.required {
                prepared.iter_mut().for_each(|launched| launched.required = Some(message));
            }
            let (context, limit) = (Context::default(), limits.context_bytes_max);
            let context = options.context(context, "client", scoop.store(), scoop.retry_for(), limit).await?;
            if !context.is_empty() {
                prepared = prepared.into_iter().map(|launched| launched.with(context.clone())).collect();
            }
            let ids: Vec<_> = prepared.iter().map(|launched| (launched.root, launched.id)).collect();
            publish(&scoop, prepared, capacity_within, "messages were launched").instrument(span).await?;
            Ok(ids.into_iter().map(|(root, id)| Handle::new(scoop.clone(), root, id)).collect())
        }
        .boxed()
    }
}

/// Launches a message in a transaction of the caller, if queues with a limit have room. Returns whether it was there before.
fn insert_admitted<'a>(
    scoop: &'a Scoop,
    connection: &'a mut PgConnection,
    launched: NewMessage,
) -> BoxFuture<'a, Result<bool, RuntimeError>> {
    async move {
        let _admitted = scoop.admission().admit(std::slice::from_ref(&launched), None).await?;
        let launch = insert_in(scoop.store(), scoop.unhandled(), connection, launched).await?;
        Ok(launch.launched == 0)
    }
    .boxed()
}

/// Launches messages in a transaction of their own. If the queue of a saga is full, waits for room for so long, if at all.
async fn publish(
    scoop: &Scoop,
    messages: Vec<NewMessage>,
    capacity_within: Option<Duration>,
    doing: &'static str,
) -> Result<StartedAs, RuntimeError> {
    let admitted = scoop.admission().admit(&messages, capacity_within).await?;
    let launched = if admitted.is_free() {
        scoop.launch_messages(messages).await
    } else {
        // It counts until its end, even if its future is dropped.
        let scoop = scoop.clone();
        let launch = async move {
            let _admitted = admitted;
            scoop.launch_messages(messages).await
        };
        run_to_completion(launch.in_current_span()).await
    };
    match launched {
        Ok(start) => Ok(start),
        Err(given_up) => Err(match Unhandled::find_in(&given_up.source) {
            // The refusal would not apply to messages of an earlier attempt.
            Some(unhandled) => unhandled.explained(scoop.store()).await,
            None => GivenUp::error(doing)(given_up),
        }),
    }
}

impl<M: Message> Launch<M> {
    /// Launches the message, waits for the end of the hierarchy, and returns the one reply to the message. As
    /// [`Handle::result`], with the type of the reply inferred from the message.
    ///
    /// # Errors
    ///
    /// Those of [`Scoop::launch`](crate::Scoop::launch) and [`Handle::result`].
    ///
    /// # Cancel safety
    ///
    /// Once polled, the message may be launched even if the future is dropped.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct AskPrice { sku: String }
    /// # impl scoop_core::Message for AskPrice { const TOPIC: &'static str = "ask"; type Reply = u64; }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let cents = scoop.launch(AskPrice { sku: "chair".into() }).result().await?;
    /// println!("{cents} cents");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn result(self) -> Result<M::Reply, RuntimeError> {
        self.await?.result::<M>().await
    }
}

impl Scoop {
    /// Launches a message in a transaction of its own. Await it for a [`Handle`]. Concurrent launches of a client are
    /// committed in batches; a refused launch does not affect the others.
    ///
    /// # Errors
    ///
    /// If the message cannot be stored. [`RuntimeError::is_no_handler`] if it requires a handler and none is subscribed;
    /// it is then not launched. [`RuntimeError::is_queue_full`] if the queue of a saga that would get it has a limit and is full;
    /// [`Launch::wait_for_capacity`] lets it wait. [`RuntimeError::is_unavailable`] if the database is away for longer than the
    /// [retry time](crate::Builder::retry_for) lasts: until then the launch is retried with the same ids, so that it takes
    /// effect once. [`RuntimeError::may_have_happened`] returns whether it may have taken effect despite the error.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it may be launched even if the future is dropped.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let outcome = scoop.launch(OrderPlaced { order: 7 }).await?.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch<M: Message>(&self, message: M) -> Launch<M> {
        Launch::new(self.clone(), message)
    }

    /// Launches many messages in one transaction: all or none. Await it for their [`Handle`]s.
    ///
    /// # Errors
    ///
    /// As [`Scoop::launch`].
    ///
    /// # Cancel safety
    ///
    /// Once polled, all or none of the messages are launched, even if the future is dropped.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let orders = scoop.launch_all((0..1000).map(|order| OrderPlaced { order })).await?;
    /// assert_eq!(orders.len(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch_all<M: Message>(&self, messages: impl IntoIterator<Item = M>) -> LaunchAll {
        let limit = self.limits().payload_bytes_max;
        let prepared = messages.into_iter().map(|message| store::prepare(&message, limit)).collect();
        LaunchAll::new(self.clone(), prepared, M::TOPIC, std::any::type_name::<M>())
    }

    /// Launches a message given by its topic and its JSON, as [`launch`](Self::launch) does with one of a type. Await it for
    /// a [`Handle`]. For tools that do not have the types of the messages; nothing checks that the sagas can read the JSON.
    ///
    /// # Errors
    ///
    /// As [`Scoop::launch`]. [`RuntimeError::is_invalid`] if the topic is empty, has more than 63 bytes or a NUL character.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it may be launched even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let order = serde_json::json!({ "order": 7 });
    /// let order = scoop.launch_untyped("orders.placed", order).required().await?;
    /// println!("{}", order.wait().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch_untyped(&self, topic: impl Into<String>, payload: serde_json::Value) -> LaunchUntyped {
        LaunchUntyped::new(self.clone(), topic.into(), payload)
    }
}
