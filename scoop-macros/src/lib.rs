//! The attributes of Scoop: `#[saga]`, `#[step]`, `#[subscribes]`, `#[derive(Message)]` and
//! `#[derive(ContextKey)]`.
//!
//! Use them through the crate `scoop`, which re-exports them beside the traits they implement.
//!
//! Each attribute goes from tokens to syntax, from syntax to a checked model, and from that to
//! tokens. All mistakes are reported at once, at the user's own tokens, and the user's code is
//! passed on in any case. What types can tell is left to the compiler: the expansion only sees
//! to it that the compiler's errors land on the user's types.

mod context;
mod derive;
mod duration;
mod errors;
mod message;
mod misplaced;
mod names;
mod saga;
mod settings;
#[cfg(test)]
mod snapshot;

use proc_macro::TokenStream;

/// Makes a struct or an enum a message.
///
/// The topic is the type's name in kebab case, or what `#[message(topic = "..")]` says: 1 to 63
/// bytes. The type needs `Serialize` and `Deserialize` as well, and cannot be generic.
///
/// `#[message(reply = Quote)]` says that its handlers answer with a `Quote`, which needs the same
/// two traits. Without it nobody answers.
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
/// #[derive(Serialize, Deserialize)]
/// struct Quote {
///     cents: u64,
/// }
///
/// assert_eq!(OrderPlaced::TOPIC, "orders.placed");
/// assert_eq!(OrderCancelled::TOPIC, "order-cancelled");
/// let _: <QuotesWanted as Message>::Reply = vec![Quote { cents: 990 }];
/// ```
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: TokenStream) -> TokenStream {
    message::derive(input.into()).into()
}

/// Makes a struct or an enum an element of the context, which travels with a run.
///
/// Its key is the type's name as it is written, or what `#[context(key = "..")]` says: 1 to 255
/// characters. Stored runs and programs in other languages rely on the key. The type needs
/// `Serialize` and `Deserialize` as well, and cannot be generic. If there is an element already,
/// the newer one takes its place; who wants to merge the two implements the trait by hand.
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

/// Makes an `impl` block a saga: its methods with [`#[step]`](macro@step) run one after another
/// for every message that the type [`#[subscribes]`](macro@subscribes) to.
///
/// The saga is stored as the type's name in kebab case, or as `#[saga(name = "..")]` says. Stored
/// runs rely on the name: a type can be renamed as long as `name` keeps it.
///
/// Beside the trait `Saga`, this generates the enum of the steps, `CheckoutStep` for `Checkout`,
/// and registers the saga with the program. A saga that is `Default` then needs nothing more; any
/// other must be provided when the program starts.
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
#[proc_macro_attribute]
pub fn saga(arguments: TokenStream, item: TokenStream) -> TokenStream {
    saga::saga(arguments.into(), item.into()).into()
}

/// Makes a method inside a [`#[saga]`](macro@saga) block a step; the steps run in the order they
/// are written in.
///
/// A step is an `async fn` of `&self`, `scope: &mut Scope<'_>` and the message. It returns
///
/// - `Result<()>`, to go on with the next step;
/// - `Result<Next<CheckoutStep>>`, to say which step is next;
/// - `Result<T>` with any other type, to go on and to leave a value. It is stored, so `T` needs
///   `Serialize` and `Deserialize`;
/// - `Result<With<CheckoutStep, T>>`, to do both: `Next::Repeat.with(value)` makes one.
///
/// # Values
///
/// A later step takes the value of an earlier one as another parameter, `&T`. Where that step may
/// not have run yet, or a jump may have skipped it, the parameter is `Option<&T>`. So a step may
/// also ask for what it returned itself in the last iteration, or for the value of a step after it.
/// The newest value counts. If two steps return the same type, nobody can ask for it.
///
/// # Settings
///
/// | setting | meaning |
/// | --- | --- |
/// | `rollback = function` | what undoes the step once it is completed |
/// | `on_child_failure = function` | what handles failures of the messages that the step launched |
/// | `finally = function` | what cleans up once the step and what it launched are done, or failed |
/// | `at = function` | what says when the step is due; the saga waits until then |
/// | `sleep = "2 days"` | how long the saga sleeps after the step |
/// | `timeout = "30s"` | how long the step may take |
/// | `retry(max = 5)` | how often the step is tried again before its failure counts |
/// | `rollback_retry(max = 5)` | the same for what undoes it |
/// | `name = ".."` | what the step is stored as, if not the function's name |
///
/// Durations are a whole number and a unit, `ms`, `s`, `m`, `h`, `d` or `w`, or its English name:
/// `"250ms"`, `"2 days"`.
///
/// The functions stand in the same block, without `#[step]`. They take what a step takes, and:
///
/// | function | last parameter | values | returns |
/// | --- | --- | --- | --- |
/// | `rollback` | `&Failure` | of earlier steps and the step's own | `Result<()>` |
/// | `on_child_failure` | `&Failure` | of earlier steps and the step's own | `Result<()>` or `Result<Next<CheckoutStep>>` |
/// | `finally` | | of earlier steps; the step's own as an `Option` | `Result<()>` |
/// | `at` | | of earlier steps | `Result<SystemTime>` |
///
/// If an earlier step returns the same type as the step itself, the first three get that of the
/// step itself. Several steps can share one function. A step with `finally` cannot jump, nor can its
/// child failure handler: a jump would leave out the cleaning up, which is a step of its own.
///
/// `retry` and `rollback_retry` also take
///
/// - `backoff = "100ms..30s"`: the first pause, which doubles up to the longest; `"5s"` is always
///   the same;
/// - `jitter = 0.2`: the share by which each pause is shorter or longer, by chance;
/// - `when = is_transient`: which errors are worth it, a `fn(&Error) -> bool` of the block or from
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

/// Names the one type of messages that a [`#[saga]`](macro@saga) handles. The two attributes can
/// stand in either order.
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
