//! What operators see of messages, values and entities: redacted, without the types of the program.

use scoop::Decider;
use scoop::operate::{Content, RunContents, RunSummary};
use serde_json::{Value, json};

use super::*;
use crate::support::Database;

#[derive(Message, Clone, Serialize, Deserialize)]
#[message(topic = "contents.order", redact(card_number, cvc))]
#[serde(rename_all = "camelCase")]
struct Order {
    number: u32,
    card_number: String,
    cvc: u32,
    turns: u32,
}

#[derive(Serialize, Deserialize)]
struct Charged {
    cents: u32,
    #[serde(rename = "cardNumber")]
    card: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "contents.parcel")]
struct Parcel {
    cvc: u32,
    weight: u32,
}

#[derive(Default)]
struct Orders;

#[saga(name = "contents-orders")]
#[subscribes(Order)]
impl Orders {
    #[step(name = "charge")]
    async fn charge(&self, scope: &mut Scope<'_>, order: &Order) -> Result<Charged> {
        scope.launch(Parcel { cvc: order.cvc, weight: 5 }).await?;
        Ok(Charged { cents: 100, card: order.card_number.clone() })
    }

    #[step(name = "again")]
    async fn again(&self, _: &mut Scope<'_>, order: &Order) -> Result<ContinueAsNew<OrdersStep, Order>> {
        if order.turns == 0 {
            return Ok(ContinueAsNew::Next(Next::Continue));
        }
        Ok(ContinueAsNew::Message(Order {
            turns: order.turns - 1,
            number: order.number + 1,
            ..order.clone()
        }))
    }
}

#[derive(Default)]
struct Parcels;

#[saga(name = "contents-parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step(name = "weigh")]
    async fn weigh(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<String> {
        Ok(noise(1_000 * parcel.weight as usize))
    }
}

/// A text that compression leaves large.
fn noise(chars: usize) -> String {
    let mut state = 88_172_645_463_325_252_u64;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u8::try_from(state % 64).ok().map(|digit| char::from(b'0' + digit))
    };
    std::iter::from_fn(next).take(chars).collect()
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Wallet {
    cents: i64,
    pin: u32,
}

#[entity(name = "contents-wallet", key = u32)]
impl Wallet {
    fn filled(&mut self, event: &Filled) {
        self.cents += event.cents;
        self.pin = event.pin;
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "contents-wallet.filled", redact(pin))]
struct Filled {
    cents: i64,
    pin: u32,
}

#[derive(Clone, Serialize, Deserialize)]
struct Fill {
    wallet: u32,
    cents: i64,
}

#[command(entity = Wallet, name = "contents-fill")]
impl Fill {
    fn key(&self) -> u32 {
        self.wallet
    }

    fn decide(&self, _: &Wallet) -> Decision<Filled> {
        Decision::Accepted(Filled { cents: self.cents, pin: 4711 })
    }
}

async fn start(db: &Database) -> Result<Scoop> {
    let scoop = db.scoop().only::<Orders>().only::<Parcels>().only::<Decider<Fill>>();
    Ok(scoop.start().await?)
}

async fn run_of(scoop: &Scoop, handler: &str) -> Result<(RunSummary, RunContents)> {
    let run = scoop.operate().runs().list().handler(handler).await?.runs.remove(0);
    let contents = scoop.operate().runs().contents(&run).await?;
    Ok((run, contents))
}

fn shown(content: Option<&Content>) -> &Value {
    let Some(Content::Shown(value)) = content else { panic!("{content:?}") };
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn redacted_fields_are_hidden_in_messages_outputs_and_other_types() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let order = Order { number: 1, card_number: "4111".into(), cvc: 123, turns: 1 };
    let order = scoop.launch(order).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    let (_, contents) = run_of(&scoop, "contents-orders").await?;
    let message = json!({"number": 2, "cardNumber": "[redacted]", "cvc": "[redacted]", "turns": 0});
    assert_eq!(shown(contents.message.as_ref()), &message, "the message of the newest execution");
    assert!(contents.is_complete);
    let charged = contents.values.iter().find(|value| value.step.as_deref() == Some("charge"));
    let charged = charged.map(|charged| &charged.value);
    assert_eq!(shown(charged), &json!({"cents": 100, "cardNumber": "[redacted]"}));
    let (_, contents) = run_of(&scoop, "contents-parcels").await?;
    assert_eq!(shown(contents.message.as_ref()), &json!({"cvc": "[redacted]", "weight": 5}));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_without_the_sagas_sees_the_redaction_after_their_programs_have_ended() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let order = scoop.launch(Order { number: 1, card_number: "4111".into(), cvc: 123, turns: 0 }).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    let client = db.client();
    let (_, contents) = run_of(&client, "contents-orders").await?;
    assert_eq!(shown(contents.message.as_ref())["cardNumber"], "[redacted]");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_several_runs_are_read_in_their_order() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    for number in [1, 7] {
        let order = Order { number, card_number: "4111".into(), cvc: 123, turns: 1 };
        assert_eq!(scoop.launch(order).await?.ends().await?, Outcome::Committed);
    }
    let mut runs = scoop.operate().runs().list().handler("contents-orders").await?.runs;
    runs.sort_by_key(|run| run.run);
    runs.reverse();
    let mut unknown = runs[0].clone();
    (unknown.message_id, unknown.run) = (uuid::Uuid::nil(), uuid::Uuid::nil().into());
    runs.push(unknown);
    let messages = scoop.operate().runs().messages(&runs).await?;
    let [newer, older, missing] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(shown(newer.as_ref())["number"], 8);
    let expected = json!({"number": 2, "cardNumber": "[redacted]", "cvc": "[redacted]", "turns": 0});
    assert_eq!(shown(older.as_ref()), &expected);
    assert_eq!(missing, &None);
    assert_eq!(scoop.operate().runs().messages(&[]).await?, []);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_is_read_by_name_and_key_with_its_events() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    assert_eq!(scoop.operate().entities().contents("contents-wallet", "7", 0).await?, None);
    for cents in 1..=51 {
        scoop.send(Fill { wallet: 7, cents }).await?.decision().await?;
    }
    scoop.send(Fill { wallet: 8, cents: 1 }).await?.decision().await?;
    assert_eq!(scoop.operate().entities().names().await?, ["contents-wallet"]);
    assert_eq!(scoop.operate().entities().keys("contents-wallet", "").await?, ["7", "8"]);
    assert_eq!(scoop.operate().entities().keys("contents-wallet", "7").await?, ["8"]);
    assert_eq!(scoop.operate().entities().keys("other", "").await?, [""; 0]);
    let wallet =
        scoop.operate().entities().contents("contents-wallet", "7", 0).await?.expect("it has events");
    assert_eq!((wallet.version, wallet.events.len(), wallet.next), (51, 50, Some(50)));
    assert_eq!(shown(wallet.state.as_ref()), &json!({"cents": 1326, "pin": "[redacted]"}));
    let first = &wallet.events[0];
    assert_eq!((first.version, first.topic.as_deref()), (1, Some("contents-wallet.filled")));
    assert_eq!(shown(first.payload.as_ref()), &json!({"cents": 1, "pin": "[redacted]"}));
    let rest = scoop.operate().entities().contents("contents-wallet", "7", 50).await?.expect("it has events");
    assert_eq!((rest.events.len(), rest.next), (1, None));
    let command = scoop.operate().runs().explain(rest.events[0].command).await?;
    assert_eq!(command.runs[0].run.handler, "contents-fill");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn large_value_is_left_out() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    assert_eq!(scoop.launch(Parcel { cvc: 1, weight: 150 }).await?.ends().await?, Outcome::Committed);
    let (_, contents) = run_of(&scoop, "contents-parcels").await?;
    let text = contents.values[0].value.to_string();
    assert!(text.starts_with("(too large to be shown: "), "{text:.80}");
    scoop.shutdown().await?;
    Ok(())
}
