//! A shop with sagas, and its pages.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, Request, StatusCode};
use scoop::prelude::*;
use scoop::tree::{RunState, Tree};
use scoop::{Builder, Handle};
use scoop_test_support::Ends as _;
use scoop_test_support::postgres::Database;
use scoop_web::Options;
use tower::ServiceExt as _;

pub(crate) const TOKEN: &str = "the token of the tests";

/// The redacted field of all orders.
pub(crate) const CARD: &str = "4111 1111";

/// The most bytes that a page of many rows has.
pub(crate) const BYTES_MAX: usize = 400_000;

/// What happens to an order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Plan {
    #[default]
    Commit,
    /// It fails with this text, and is rolled back.
    Fail(String),
    /// It fails, and so does its compensation.
    FailToUndo,
    /// The same, and the compensation fails with this text.
    FailToUndoBecause(String),
    /// It launches another order, which fails like that.
    FailBelow,
    /// It launches so many parcels, which wait for a signal.
    Ship(u32),
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.orders", redact(card))]
pub(crate) struct Order {
    pub(crate) plan: Plan,
    pub(crate) card: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.parcels", redact(card))]
pub(crate) struct Parcel {
    number: u32,
    card: String,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "shop.collected", retention = "1 day")]
pub(crate) struct Collected {}

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("{0}")]
struct SoldOut(String);

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("the bank is closed")]
struct BankClosed;

#[derive(Default)]
pub(crate) struct Orders;

#[saga(name = "orders")]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<Reserved> {
        if let Plan::Ship(parcels) = order.plan {
            for number in 0..parcels {
                scope.launch(Parcel { number, card: CARD.into() }).await?;
            }
        }
        if let Plan::FailBelow = order.plan {
            scope.launch(Order { plan: Plan::FailToUndo, card: CARD.into() }).await?;
        }
        Ok(Reserved { shelf: 7, card: order.card.clone() })
    }

    async fn release(&self, _: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        match &order.plan {
            Plan::FailToUndo => Err(BankClosed.into()),
            Plan::FailToUndoBecause(why) => Err(SoldOut(why.clone()).into()),
            _ => Ok(()),
        }
    }

    #[step]
    async fn pack(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        match &order.plan {
            Plan::Fail(why) => Err(SoldOut(why.clone()).into()),
            Plan::FailToUndo | Plan::FailToUndoBecause(_) => Err(SoldOut("none left".into()).into()),
            Plan::Commit | Plan::FailBelow | Plan::Ship(_) => Ok(()),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Reserved {
    shelf: u32,
    card: String,
}

#[derive(Default)]
pub(crate) struct Parcels;

#[saga(name = "parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step(awaits(Collected, by = key))]
    async fn hand_over(&self, _: &mut Scope<'_>, _: &Parcel, _: &Collected) -> Result<()> {
        Ok(())
    }

    async fn key(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<String> {
        Ok(format!("parcel {}", parcel.number))
    }
}

/// Who an order is for.
#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "shop.tenant")]
pub(crate) struct Tenant {
    pub(crate) name: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.mails")]
pub(crate) struct Mail {}

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("the mailbox is full")]
struct MailboxFull;

/// Fails at its first attempt, and waits for the next one.
#[derive(Default)]
pub(crate) struct Mails;

#[saga(name = "mails")]
#[subscribes(Mail)]
impl Mails {
    #[step(retry(max = 2, backoff = "1h..1h"))]
    async fn send(&self, _: &mut Scope<'_>, _: &Mail) -> Result<()> {
        Err(MailboxFull.into())
    }
}

/// The error queue.
#[derive(Default)]
pub(crate) struct OnCall;

#[saga(name = "on-call")]
#[subscribes(Failed(outcome = "rolled_back"))]
impl OnCall {
    #[step]
    async fn page(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Report;

#[saga(name = "report", every = "90m")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Stock {
    units: u32,
}

#[entity(name = "stock", key = String)]
impl Stock {
    fn filled(&mut self, event: &Filled) {
        self.units += event.units;
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.filled")]
pub(crate) struct Filled {
    units: u32,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Fill {
    pub(crate) sku: String,
    pub(crate) units: u32,
}

#[command(entity = Stock, name = "fill")]
impl Fill {
    fn key(&self) -> String {
        self.sku.clone()
    }

    fn decide(&self, _: &Stock) -> Decision<Filled> {
        Decision::Accepted(Filled { units: self.units })
    }
}

/// A database with a program that has sagas, and its pages.
pub(crate) struct Shop {
    pub(crate) scoop: Scoop,
    pub(crate) router: Router,
    pub(crate) db: Database,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Got {
    #[track_caller]
    pub(crate) fn has(&self, part: &str) -> &Self {
        assert!(self.text.contains(part), "{part:?} is not in {} {}", self.status, self.text);
        self
    }

    #[track_caller]
    pub(crate) fn lacks(&self, part: &str) -> &Self {
        assert!(!self.text.contains(part), "{part:?} is in {} {}", self.status, self.text);
        self
    }

    /// Where the browser is sent to.
    #[track_caller]
    pub(crate) fn location(&self) -> &str {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        self.headers[LOCATION].to_str().unwrap()
    }

    /// The cookies that the browser would send from now on.
    pub(crate) fn cookies(&self) -> String {
        let set = self.headers.get_all(SET_COOKIE).into_iter().map(|value| value.to_str().unwrap());
        set.filter_map(|cookie| cookie.split(';').next()).collect::<Vec<_>>().join("; ")
    }

    /// The path of the next page.
    #[track_caller]
    pub(crate) fn next(&self) -> String {
        let from = self.text.split_once("rel=\"next\" href=\"").expect("there is a next page").1;
        let path = from.split_once('"').unwrap().0.replace("&#38;", "&");
        path.split('#').next().unwrap_or_default().to_owned()
    }

    /// The value of the hidden field of the form.
    pub(crate) fn form(&self) -> &str {
        let from = self.text.split_once("name=\"form\" value=\"").expect("the page has a form").1;
        from.split_once('"').unwrap().0
    }
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::with(Options::new().without_token()).await
    }

    /// A shop with orders and parcels.
    pub(crate) async fn with(options: Options) -> Self {
        Self::of(options, |scoop| scoop).await
    }

    /// The same with mails, an error queue, a schedule and an entity.
    pub(crate) async fn with_all_sagas() -> Self {
        let all =
            |scoop: Builder| scoop.only::<Mails>().only::<OnCall>().only::<Report>().only::<Decider<Fill>>();
        Self::of(Options::new().without_token(), all).await
    }

    async fn of(options: Options, sagas: impl FnOnce(Builder) -> Builder) -> Self {
        let db = Database::new().await;
        let scoop = sagas(db.scoop().only::<Orders>().only::<Parcels>().service("shop").build("7"))
            .start()
            .await
            .unwrap();
        let router = scoop_web::router(scoop.clone(), options);
        Self { scoop, router, db }
    }

    /// Launches an order and waits for its end.
    pub(crate) async fn order(&self, plan: Plan) -> Handle {
        let order = self.scoop.launch(Order { plan, card: CARD.into() }).await.unwrap();
        order.wait().await.unwrap();
        order
    }

    /// Launches an order with so many parcels, and waits until all of these wait for a signal.
    pub(crate) async fn shipped(&self, parcels: u32) -> Handle {
        let order = self.scoop.launch(Order { plan: Plan::Ship(parcels), card: CARD.into() }).await.unwrap();
        let waiting = |tree: &Tree| {
            let waits = tree.runs().into_iter().filter(|run| run.state == RunState::AwaitingSignal);
            waits.count() == parcels as usize
        };
        order.comes_to(waiting).await.unwrap();
        order
    }

    /// Launches a mail for a tenant, and waits until its first attempt has failed.
    pub(crate) async fn retried(&self) -> Handle {
        let tenant = Tenant { name: "Northwind".into() };
        let mail = self.scoop.launch(Mail {}).with(tenant).await.unwrap();
        mail.comes_to(|tree| matches!(tree.roots()[0].state, RunState::Retrying { .. })).await.unwrap();
        mail
    }

    /// Launches an order whose message becomes unreadable after its first step, and waits until its run is stuck.
    pub(crate) async fn stuck(&self) -> Handle {
        let order = self.shipped(1).await;
        let message = order.message_id();
        let spoil = format!("UPDATE scoop.message SET payload = '{{}}' WHERE id = '{message}'");
        self.db.execute(&spoil).await;
        self.scoop.signal(Collected {}, "parcel 0").await.unwrap();
        order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::Stuck { .. })).await.unwrap();
        order
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn get_with(&self, path: &str, cookies: &str) -> Got {
        self.send(Request::get(path).header(COOKIE, cookies).body(Body::empty()).unwrap()).await
    }

    /// Sends a form, as the browser does from a page of this host.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Got {
        self.post_from("same-origin", path, fields).await
    }

    pub(crate) async fn post_from(&self, site: &str, path: &str, fields: &[(&str, &str)]) -> Got {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::post(path)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header("sec-fetch-site", site);
        self.send(request.body(Body::from(body)).unwrap()).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Got {
        sent(self.router.clone(), request).await
    }
}

pub(crate) async fn sent(router: Router, request: Request<Body>) -> Got {
    let response = router.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8(bytes.into()).expect("pages are UTF-8");
    Got { status: parts.status, headers: parts.headers, text }
}
