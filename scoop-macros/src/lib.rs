//! The attributes of Scoop: `#[saga]`, `#[step]`, `#[subscribes]`, `#[entity]`, `#[command]`, `#[trace]`, and the derives `Message`,
//! `ContextKey` and `FailureCode`.
//!
//! Use them through the crate `scoop`, which re-exports them beside the traits they implement.
//!
//! Each attribute goes from tokens to syntax, from syntax to a checked model, and from that to tokens. All
//! mistakes are reported at once, at the user's own tokens, and the user's code is always passed on. Checks
//! that need types are left to the compiler: the expansion only makes the compiler's errors land on the user's
//! types.

mod command;
mod context;
mod derive;
mod duration;
mod entity;
mod errors;
mod failure_code;
mod message;
mod misplaced;
mod names;
mod near_miss;
mod redact;
mod saga;
mod settings;
mod signal;
#[cfg(test)]
mod snapshot;
mod trace;

use proc_macro::TokenStream;

/// Makes a struct or an enum a message.
///
/// The topic is the type's name in kebab case, or the one in `#[message(topic = "..")]`: 1 to 63 bytes. The
/// type needs `Serialize` and `Deserialize` as well, and cannot be generic.
///
/// With `#[message(reply = Quote)]` each of its handlers may reply once, with a `Quote`, which needs the same
/// two traits. With `#[message(replies = Quote)]` each may reply any number of times. Without either no handler
/// replies.
///
/// With `#[message(handlers = "required")]` each launch fails if no handler is subscribed to the topic at that
/// moment. Without it such a message is stored, and a warning is logged.
///
/// With `#[message(keep = "90 days")]` the finished hierarchies that start with such a message are kept for that time, an
/// hour at least, and with `keep = "forever"` for ever, in place of the times of the program.
///
/// With `#[message(redact(card, cvc))]` the web page and the command line do not show the values of these fields: not in the
/// message, and not under the same names in anything else.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[message(topic = "orders.placed")]
/// struct OrderPlaced {
///     order: u32,
/// }
///
/// #[derive(Message, Serialize, Deserialize)]
/// struct OrderCancelled;
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[message(reply = Vec<Quote>)]
/// struct QuotesWanted {
///     sku: String,
/// }
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[message(replies = Quote)]
/// struct OffersWanted {
///     sku: String,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Quote {
///     cents: u64,
/// }
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[message(handlers = "required", keep = "90 days")]
/// struct ChargeCard {
///     cents: u64,
/// }
///
/// assert!(ChargeCard::REQUIRES_HANDLER && !OrderPlaced::REQUIRES_HANDLER);
/// assert_eq!(ChargeCard::KEEP.map(|time| time.as_secs()), Some(90 * 24 * 60 * 60));
/// assert_eq!(OrderPlaced::TOPIC, "orders.placed");
/// assert_eq!(OrderCancelled::TOPIC, "order-cancelled");
/// let _: <QuotesWanted as Message>::Reply = vec![Quote { cents: 990 }];
/// let _: <OffersWanted as Message>::Reply = Quote { cents: 990 };
/// assert!(OffersWanted::MANY_REPLIES && !QuotesWanted::MANY_REPLIES);
/// ```
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: TokenStream) -> TokenStream {
    message::derive(input.into()).into()
}

/// Makes a struct or an enum a signal: a value from outside that runs await, told apart by a key.
///
/// Its name is that of the type in kebab case, or the one in `#[signal(name = "..")]`: 1 to 180 characters. A
/// signal that no run awaits yet is kept for a week, or for the time in `#[signal(keep = "..")]`. The type needs
/// `Serialize` and `Deserialize` as well, and cannot be generic.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(Signal, Serialize, Deserialize)]
/// #[signal(name = "payments.confirmed", keep = "2 days")]
/// struct PaymentConfirmed {
///     amount: i64,
/// }
///
/// assert_eq!(PaymentConfirmed::NAME, "payments.confirmed");
/// assert_eq!(PaymentConfirmed::KEEP.as_secs(), 2 * 24 * 60 * 60);
/// ```
#[proc_macro_derive(Signal, attributes(signal))]
pub fn signal(input: TokenStream) -> TokenStream {
    signal::derive(input.into()).into()
}

/// Makes the functions of an `impl` block the applications of events to an entity.
///
/// `#[entity(name = "stock", key = Uuid)]`; without `name` it is that of the type in kebab case. Each function with
/// `&mut self` and an event changes the state as the event says. The type implements `Default`, `Serialize` and
/// `Deserialize`.
///
/// ```ignore
/// #[derive(Default, Serialize, Deserialize)]
/// struct Stock { units: i64 }
///
/// #[entity(name = "stock", key = Uuid)]
/// impl Stock {
///     fn reserved(&mut self, event: &StockReserved) {
///         self.units -= event.units;
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn entity(arguments: TokenStream, item: TokenStream) -> TokenStream {
    entity::entity(arguments.into(), item.into()).into()
}

/// Makes an `impl` block a command, about which an entity decides.
///
/// `#[command(entity = Stock)]`, with `topic = ".."`, `name = ".."` and `was = ".."` as needed. The type is the message;
/// it implements `Serialize` and `Deserialize`.
///
/// | function | |
/// | --- | --- |
/// | `fn key(&self) -> Key` | the key of the entity |
/// | `fn authorize(&self, caller: &Caller) -> Result<()>` | optional: refuses the command with an error, before all other code of it |
/// | `async fn fetch(&self, scope: &mut Scope<'_>) -> Result<T>` | optional: gets information from outside, as a step; `#[step(timeout = .., retry(..))]` |
/// | `fn decide(&self, entity: &Stock, fetched: &T) -> Decision<Event, Rejection>` | decides from these values alone; without `fetch` there is no `fetched` |
/// | `fn undo(&self, entity: &Stock, event: &Event) -> Option<OtherEvent>` | optional: the event that undoes an accepted command in a rollback |
///
/// ```ignore
/// #[derive(Serialize, Deserialize)]
/// struct ReserveStock { product: Uuid, units: i64 }
///
/// #[command(entity = Stock)]
/// impl ReserveStock {
///     fn key(&self) -> Uuid {
///         self.product
///     }
///
///     fn decide(&self, stock: &Stock) -> Decision<StockReserved, ()> {
///         match self.units <= stock.units {
///             true => Decision::Accepted(StockReserved { product: self.product, units: self.units }),
///             false => Decision::Rejected(()),
///         }
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn command(arguments: TokenStream, item: TokenStream) -> TokenStream {
    command::command(arguments.into(), item.into()).into()
}

/// Makes a struct or an enum an element of the context, which travels with a run.
///
/// Its key is the type's name as written, or the one in `#[context(key = "..")]`: 1 to 255 characters. Stored
/// runs and programs in other languages rely on the key. The type needs `Serialize` and `Deserialize` as well,
/// and cannot be generic. A newer element with the same key replaces an older one. To merge the two, implement
/// the trait by hand.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(ContextKey, Serialize, Deserialize)]
/// struct TenantId(u32);
///
/// #[derive(ContextKey, Serialize, Deserialize)]
/// #[context(key = "trace")]
/// struct TraceId(String);
///
/// assert_eq!(TenantId::KEY, "TenantId");
/// assert_eq!(TraceId::KEY, "trace");
/// ```
#[proc_macro_derive(ContextKey, attributes(context))]
pub fn context_key(input: TokenStream) -> TokenStream {
    context::derive(input.into()).into()
}

/// Gives a type of errors a code, so that services above find it in a failure with its own type.
///
/// The code is the type's name in kebab case, or the one in `#[failure(code = "..")]`: 1 to 180 characters.
/// Stored failures rely on it: a type can be renamed as long as it keeps its code. The type needs `Error`,
/// `Serialize` and `Deserialize` as well, and cannot be generic. A program with two types of the same code does
/// not start.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
/// #[failure(code = "stock.out")]
/// #[error("{wanted} were wanted, {left} are left")]
/// struct OutOfStock {
///     wanted: u32,
///     left: u32,
/// }
///
/// // An error that the step of a service returns with `?` is stored, and reaches the services above:
/// let failure = Error::from(OutOfStock { wanted: 7, left: 2 }).into_failure("stock[worker]");
/// assert_eq!(failure.kind, "stock.out");
///
/// // In a child failure handler, in a compensation, or after waiting for the outcome:
/// let found = failure.find::<OutOfStock>().unwrap();
/// assert_eq!((found.wanted, found.left), (7, 2));
/// ```
#[proc_macro_derive(FailureCode, attributes(failure))]
pub fn failure_code(input: TokenStream) -> TokenStream {
    failure_code::derive(input.into()).into()
}

/// Records the place of each `?` that an error passes, in a function or in the functions of a block, so that a
/// failure has its whole path. The functions of a [`#[saga]`](macro@saga) do so without it.
///
/// It applies to functions that return `scoop::Result`, without their closures, `async` blocks and macros;
/// `.here()?` records the place there. A `?` that converts another error is recorded anywhere.
///
/// The return type of such a function is recognized by its name. With a `Result<T>` or an `Error` of your own
/// of that name, the function keeps its behaviour, but a `?` in it cannot pass an error that borrows. Write
/// `crate::Result<T>` then.
///
/// ```
/// use scoop::prelude::*;
///
/// #[scoop::trace]
/// fn price(text: &str) -> Result<u32> {
///     Ok(text.parse::<u32>()?)
/// }
///
/// #[scoop::trace]
/// fn total(prices: &[&str]) -> Result<u32> {
///     let mut total = 0;
///     for text in prices {
///         total += price(text)?;
///     }
///     Ok(total)
/// }
///
/// let failure = total(&["7", "a lot"]).unwrap_err().into_failure("orders[worker]");
/// assert_eq!(failure.stack_trace.len(), 2);
/// assert_eq!(failure.stack_trace[1].function_name.as_deref(), Some("total"));
/// ```
#[proc_macro_attribute]
pub fn trace(arguments: TokenStream, item: TokenStream) -> TokenStream {
    trace::item(arguments.into(), item.into()).into()
}

/// Makes an `impl` block a saga: its methods with [`#[step]`](macro@step) run one after another
/// for every message that the type [`#[subscribes]`](macro@subscribes) to.
///
/// The saga is stored under the type's name in kebab case, or under the one in `#[saga(name = "..")]`. Stored
/// runs rely on the name: a type can be renamed as long as `name` keeps it.
///
/// Besides the implementation of `Saga`, this generates the enum of the steps, `CheckoutStep` for `Checkout`,
/// and registers the saga with the program. A saga that is `Default` then needs nothing more. Any other must be
/// provided when the program starts. Each `?` in the block records its place when an error passes it, as with
/// [`#[trace]`](macro@trace).
///
/// | setting | meaning |
/// | --- | --- |
/// | `name = ".."` | the stored name of the saga |
/// | `was = ".."` or `was = ["..", ".."]` | its former names, oldest first: it takes over their runs |
/// | `concurrency = 10` | so many of its runs are executed at once, in all processes together |
/// | `concurrency(1, by = customer)` | the same for each key: a field of the message, or a function of the saga |
/// | `rate("100/s")` | so many of its runs begin within any period of this length, in all processes together |
/// | `rate("100/s", by = customer)` | the same for each key |
/// | `queue = 10_000` | at most so many of its runs wait for a worker: launches from outside are refused above that |
/// | `every = "1h"` | scheduled, periodically after this time: `10ms` to `3650d` |
/// | `cron = "0 3 * * *"` | scheduled, at these times; with the feature `cron` |
/// | `zone = "Europe/Prague"` | the time zone of `cron`, from the IANA database; by default `UTC` |
/// | `missed = "once"` | runs for times without any process: `skip`, `once` or `all` |
/// | `overlap = "allow"` | runs for times at which the last run has not ended: `allow` or `skip` |
///
/// Not supported: generic sagas, steps that a `#[cfg]` may remove, and two blocks for one type.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(Message, Serialize, Deserialize)]
/// struct OrderPlaced {
///     order: u32,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Payment {
///     id: u32,
/// }
///
/// #[derive(Default)]
/// struct Checkout;
///
/// #[saga]
/// #[subscribes(OrderPlaced)]
/// impl Checkout {
///     #[step(rollback = refund)]
///     async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
///         println!("charging {} once: {}", order.order, scope.idempotency_key());
///         Ok(Payment { id: 7 })
///     }
///
///     async fn refund(
///         &self,
///         _: &mut Scope<'_>,
///         _: &OrderPlaced,
///         paid: &Payment,
///         why: &Failure,
///     ) -> Result<()> {
///         println!("giving back payment {}: {why}", paid.id);
///         Ok(())
///     }
///
///     #[step]
///     async fn ship(
///         &self,
///         scope: &mut Scope<'_>,
///         order: &OrderPlaced,
///         paid: &Payment,
///     ) -> Result<Next<CheckoutStep>> {
///         println!("shipping {}, paid with {}", order.order, paid.id);
///         Ok(if scope.iteration() < 3 { Next::Repeat } else { Next::Continue })
///     }
/// }
///
/// assert_eq!(Checkout::DEFINITION.saga, "checkout");
/// assert_eq!(Checkout::DEFINITION.steps[0].name, "charge");
/// assert_ne!(CheckoutStep::Charge, CheckoutStep::Ship);
/// ```
///
/// # Scheduled sagas
///
/// With `every` or `cron` the engine launches the runs. The message is then `Tick`, with the time that is due
/// and the number of times so far. Each time has one run, for any number of processes with the saga. Its ticks
/// have a topic of their own, `ticks.` and the name of the saga, so the name has 57 bytes at most.
///
/// ```
/// use scoop::prelude::*;
///
/// #[derive(Default)]
/// struct NightlyReport;
///
/// #[saga(cron = "0 3 * * *", zone = "Europe/Prague", missed = "skip")]
/// #[subscribes(Tick)]
/// impl NightlyReport {
///     #[step]
///     async fn write(&self, _: &mut Scope<'_>, tick: &Tick) -> Result<()> {
///         println!("report {}, due at {:?}", tick.count(), tick.due());
///         Ok(())
///     }
/// }
/// ```
///
/// * `every` counts from the first start of a program with the saga: it runs for the first time after that
///   pause, and then at that time and its multiples, without drift. A changed schedule begins anew when a
///   program with it starts, and earlier missed times are dropped. All processes use the schedule of the one
///   that started last.
/// * The fields of `cron` are minute, hour, day of the month, month and day of the week, with seconds before
///   them if there are six. A field is a number, a range `1-5`, a list `1,3`, all `*`, or every so many `*/10`;
///   `JAN`, `MON`, `L` (the last), `5#2` (the second Friday) and `15W` (the working day closest to the 15th)
///   are possible, too. If both day of the month and day of the week are restricted, either one suffices.
/// * Where clocks are put forward, a time of day that does not exist is due right after the change. Where they
///   are put back, a time that exists twice is due the first time only. An hour of `*` follows real time
///   instead: nothing for the missing hour, and each of the two equal ones.
/// * A time is missed if another one followed before any process came to it, or if it is more than a minute
///   ago. `once` runs once for all of them, for the first; `all` runs for each, oldest first, of more than
///   10,000 for the newest only; `skip` drops them.
/// * A tick does not wait for the run of the last one, and two runs are independent of each other.
///   `overlap = "skip"` drops a time that comes while any part of the last run has not ended, also while it is
///   rolled back or stuck.
/// * The database's clock counts, not that of a process. If it is put back, the saga waits until it has caught
///   up: no time has a second run.
///
/// `scoop.trigger::<NightlyReport>()` runs such a saga at once, in addition to its schedule.
#[proc_macro_attribute]
pub fn saga(arguments: TokenStream, item: TokenStream) -> TokenStream {
    saga::saga(arguments.into(), item.into()).into()
}

/// Makes a method inside a [`#[saga]`](macro@saga) block a step. The steps run in the order in which they are
/// written.
///
/// A step is an `async fn` of `&self`, `scope: &mut Scope<'_>` and the message. It returns
///
/// - `Result<()>`, to go on with the next step;
/// - `Result<Next<CheckoutStep>>`, to choose the next step;
/// - `Result<T>` with any other type, to go on with a value. It is stored, so `T` needs `Serialize` and
///   `Deserialize`;
/// - `Result<With<CheckoutStep, T>>`, to do both: `Next::Repeat.with(value)` makes one;
/// - `Result<Anew<FeedStep, Feed>>`, to choose the next step, or to begin a new execution of the saga with the message
///   of `Next::anew(Feed { .. })`.
///
/// # Values
///
/// A later step takes the value of an earlier one as another parameter, `&T`. If that step may not have run
/// yet, or a jump may have skipped it, the parameter is `Option<&T>`. So a step can also take its own value of
/// the last iteration, or the value of a later step. The newest value counts. A type that two steps return
/// cannot be a parameter.
///
/// # Settings
///
/// | setting | meaning |
/// | --- | --- |
/// | `rollback = function` | the compensation of the completed step |
/// | `on_child_failure = function` | the handler for failures of the step's children |
/// | `finally = function` | the cleanup after the step and its children are done, or failed |
/// | `at = function` | the function that returns when the step is due; the saga waits until then |
/// | `awaits(Signal, by = function)` | the signal that the saga awaits before the step; the function returns its key |
/// | `awaits(Signal, by = function, within = "2 days")` | the same, for this time at most |
/// | `sleep = "2 days"` | the sleep after the step |
/// | `timeout = "30s"` | the time limit of the step |
/// | `retry(max = 5)` | the number of further attempts before a failure counts |
/// | `rollback_retry(max = 5)` | the same for the compensation |
/// | `delivery = "at_most_once"` | the step is never begun a second time; if its result is unknown, it fails as `Interrupted` |
/// | `name = ".."` | the stored name of the step; by default the function's name |
/// | `was = ".."` or `was = ["..", ".."]` | its former names, oldest first |
///
/// Durations are a whole number and a unit, `ms`, `s`, `m`, `h`, `d` or `w`, or its English name:
/// `"250ms"`, `"2 days"`.
///
/// The functions are in the same block, without `#[step]`. A function that takes a scope, and that neither a
/// setting nor a body in the block names, is refused: an attribute was forgotten, or the function belongs in an
/// `impl` block without `#[saga]`. They take the parameters of a step, and:
///
/// | function | last parameter | values | returns |
/// | --- | --- | --- | --- |
/// | `rollback` | `&Failure` | of earlier steps and the step's own | `Result<()>` |
/// | `on_child_failure` | `&Failure` | of earlier steps and the step's own | `Result<()>` or `Result<Next<CheckoutStep>>` |
/// | `finally` | | of earlier steps; the step's own as an `Option` | `Result<()>` |
/// | `at` | | of earlier steps | `Result<SystemTime>` |
/// | `by` of `awaits` | | of earlier steps | `Result<String>` |
///
/// If an earlier step returns the same type as the step itself, the first three get the value of the step
/// itself. Several steps can share one function. A step with `finally` cannot jump, nor can its child failure
/// handler: a jump would skip the cleanup, which is a step of its own.
///
/// `retry` and `rollback_retry` also take
///
/// - `backoff = "100ms..30s"`: the first pause, which doubles up to the longest; `"5s"` is always the same;
/// - `jitter = 0.2`: the largest share by which each pause is randomly shortened or lengthened;
/// - `when = is_transient`: the errors worth another attempt, a `fn(&Error) -> bool` of the block or from
///   elsewhere.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use scoop::prelude::*;
///
/// #[derive(Message, Serialize, Deserialize)]
/// struct Subscribed {
///     paid_until: SystemTime,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Reminders(u32);
///
/// #[derive(Default)]
/// struct Renewal;
///
/// #[saga]
/// #[subscribes(Subscribed)]
/// impl Renewal {
///     #[step(at = a_week_before, retry(max = 5, backoff = "1s..10m", when = is_transient), sleep = "2 days")]
///     async fn remind(
///         &self,
///         _: &mut Scope<'_>,
///         _: &Subscribed,
///         sent: Option<&Reminders>,
///     ) -> Result<With<RenewalStep, Reminders>> {
///         let sent = sent.map_or(1, |sent| sent.0 + 1);
///         let next = if sent < 3 { Next::Repeat } else { Next::Continue };
///         Ok(next.with(Reminders(sent)))
///     }
///
///     #[step(finally = close)]
///     async fn renew(&self, _: &mut Scope<'_>, _: &Subscribed, sent: &Reminders) -> Result<()> {
///         println!("renewing after {} reminders", sent.0);
///         Ok(())
///     }
///
///     async fn a_week_before(&self, _: &mut Scope<'_>, of: &Subscribed) -> Result<SystemTime> {
///         Ok(of.paid_until - Duration::from_secs(7 * 24 * 3600))
///     }
///
///     async fn close(&self, _: &mut Scope<'_>, _: &Subscribed) -> Result<()> {
///         Ok(())
///     }
///
///     fn is_transient(error: &Error) -> bool {
///         error.to_string().contains("timed out")
///     }
/// }
///
/// let names: Vec<_> = Renewal::DEFINITION.steps.iter().map(|step| step.name.clone()).collect();
/// assert_eq!(names, ["remind (waiting for scheduled time)", "remind", "renew", "renew (finally)"]);
/// ```
///
/// See [`#[saga]`](macro@saga) for another example.
#[proc_macro_attribute]
pub fn step(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    misplaced::step(item.into()).into()
}

/// Names the type of messages that a [`#[saga]`](macro@saga) handles. The two attributes can be in either order.
///
/// `#[subscribes(any(OrderPlaced, OrderChanged))]` names several types. The functions of the saga take an enum of them,
/// which is generated as `CheckoutMessage` for `Checkout`, with variants named like the types. Each type keeps its topic
/// and its replies: `CheckoutMessage::OrderPlaced(order) => scope.reply(order, ..)`.
///
/// `#[subscribes(join(PaymentCaptured, StockPicked, by = order, within = "3 days"))]` waits for one message of each type
/// with the same key, and runs once for all of them, in a hierarchy of its own. The functions take a struct of them, which
/// is generated as `ShippingMessage` for `Shipping`. `by` names a field of all messages, or a function for each:
/// `by = [order_of_payment, Shipping::order_of_stock]`, each by its path, as `fn order_of_payment(message: &PaymentCaptured) -> i64`
/// or with a reference as its result. A set that is not complete within that time fails as `JoinIncomplete`.
///
/// `#[subscribes(Failed)]` makes the saga an error queue. `#[subscribes(Failed(saga = Checkout, outcome = "stuck"))]` limits
/// it to a saga, to an outcome (`"rolled_back"`, `"rollback_failed"` or `"stuck"`), or to both.
///
/// ```
/// # use scoop::prelude::*;
/// # #[derive(Message, Serialize, Deserialize)]
/// # #[message(topic = "orders.placed")]
/// # struct OrderPlaced;
/// # struct Checkout;
/// #[saga]
/// #[subscribes(OrderPlaced)]
/// impl Checkout {
///     // ..
/// #   #[step]
/// #   async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> { Ok(()) }
/// }
///
/// assert_eq!(Checkout::DEFINITION.topic, "orders.placed");
/// ```
#[proc_macro_attribute]
pub fn subscribes(arguments: TokenStream, item: TokenStream) -> TokenStream {
    misplaced::subscribes(arguments.into(), item.into()).into()
}
