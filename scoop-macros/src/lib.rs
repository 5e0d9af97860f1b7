//! The attributes of Scoop: `#[saga]`, `#[step]`, `#[subscribes]` and `#[derive(Message)]`.
//!
//! Use them through the crate `scoop`, which re-exports them beside the traits they implement.
//!
//! Each attribute goes from tokens to syntax, from syntax to a checked model, and from that to
//! tokens. All mistakes are reported at once, at the user's own tokens, and the user's code is
//! passed on in any case. What types can tell is left to the compiler: the expansion only sees
//! to it that the compiler's errors land on the user's types.

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
/// assert_eq!(OrderPlaced::TOPIC, "orders.placed");
/// assert_eq!(OrderCancelled::TOPIC, "order-cancelled");
/// ```
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: TokenStream) -> TokenStream {
    message::derive(input.into()).into()
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
/// | setting | meaning |
/// | --- | --- |
/// | `name = ".."` | what the saga is stored as |
/// | `every = "1h"` | it runs by itself, again and again after this time: `10ms` to `3650d` |
/// | `cron = "0 3 * * *"` | it runs by itself at these times |
/// | `zone = "Europe/Prague"` | by which clocks `cron` goes: a zone of the IANA database, if not `UTC` |
/// | `missed = "once"` | what becomes of times at which no process lived: `skip`, `once` or `all` |
/// | `overlap = "allow"` | what becomes of a time that comes while the last run goes on: `allow` or `skip` |
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
/// # Sagas that run by themselves
///
/// With `every` or `cron` nobody has to launch anything. The message is then `Tick`, which says
/// which time has come and how many there were. Each time has one run, however many processes have the
/// saga; its ticks are on a topic of their own, `ticks.` and the name of the saga, so that the name
/// has 57 bytes at most.
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
/// * `every` counts from the first start of a program that has the saga: it runs for the first time
///   after that pause, and then at that time and its multiples, without drift. A schedule that
///   changes begins anew when a program that has it so starts; what was missed is then let go. All
///   processes go by the schedule of the one that started last.
/// * The fields of `cron` are minute, hour, day of the month, month and day of the week, with seconds
///   before them if there are six. A field is a number, a range `1-5`, a list `1,3`, all `*`, or every
///   so many `*/10`; `JAN`, `MON`, `L` (the last), `5#2` (the second Friday) and `15W` (the working day
///   closest to the 15th) are possible, too. Of day of the month and day of the week either will do
///   if both say something.
/// * Where clocks are put forward, a time of day that does not exist is due when that has happened;
///   where they are put back, one that exists twice is due the first time only. An hour of `*` goes by
///   real time instead: nothing for the hour that is missing, and each of the two that are alike.
/// * A time has been missed if another one followed before any process came to it, or if it is more
///   than a minute ago. `once` runs once for all of them, for the first; `all` runs for each, oldest
///   first; `skip` lets them go.
/// * A tick does not wait for the run of the last one, and two runs are independent of each other.
///   `overlap = "skip"` lets a time go that comes while anything of the last run has not ended, be it
///   that it is rolled back, or set aside until a program fits it.
/// * The database's clock counts, not that of a process. If it is put back, the saga waits until it
///   has caught up; no time has a second run.
///
/// `scoop.trigger::<NightlyReport>()` runs such a saga at once, beside its schedule.
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
///   `Serialize` and `Deserialize`. A later step takes it as another parameter, `&T`. If two
///   steps return the same type, nobody can ask for it.
///
/// | setting | meaning |
/// | --- | --- |
/// | `rollback = function` | what undoes the step once it is completed |
/// | `on_child_failure = function` | what handles failures of the messages that the step launched |
/// | `name = ".."` | what the step is stored as, if not the function's name |
/// | `timeout = "30s"` | how long it may take: a whole number of `ms`, `s`, `m`, `h` or `d` |
///
/// The two functions stand in the same block, without `#[step]`. They take what a step takes and
/// `&Failure` as the last parameter; their values are those of earlier steps and of the step
/// itself, whose own goes first. They return `Result<()>`; a child failure handler may return
/// `Result<Next<CheckoutStep>>` instead. Several steps can share one.
///
/// See [`#[saga]`](macro@saga) for an example.
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
