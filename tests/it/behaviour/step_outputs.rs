//! Values of steps, and their recipients.

use std::sync::Mutex;

use super::*;
use crate::support::Database;

#[derive(Debug, Serialize, Deserialize)]
struct Payment {
    id: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Parcels(Vec<String>);

mod to_later_steps {
    use super::*;

    #[derive(Default)]
    struct Checkout;

    #[saga]
    #[subscribes(Root)]
    impl Checkout {
        #[step]
        async fn charge(&self, _: &mut Scope<'_>, _: &Root) -> Result<Payment> {
            Ok(Payment { id: 7 })
        }

        #[step]
        async fn pack(&self, scope: &mut Scope<'_>, _: &Root, paid: &Payment) -> Result<Parcels> {
            // Through the database and back: the run is claimed anew after its child.
            scope.launch(Child).await?;
            Ok(Parcels(vec![format!("paid with {}", paid.id)]))
        }

        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &Root, paid: &Payment, parcels: &Parcels) -> Result<()> {
            assert_eq!((paid.id, &*parcels.0), (7, &["paid with 7".to_owned()][..]));
            Ok(())
        }
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "nothing" nothing => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_value_is_there_for_later_steps() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Checkout, ChildHandler)).await?;
        assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
        Ok(())
    }
}

mod to_the_compensation {
    use super::*;

    #[derive(Default)]
    struct Undone(Mutex<Vec<u32>>);

    /// Charges thrice; each charge has its own number.
    struct Checkout {
        undone: &'static Undone,
    }

    #[saga]
    #[subscribes(Root)]
    impl Checkout {
        #[step(rollback = refund)]
        async fn charge(&self, _: &mut Scope<'_>, _: &Root) -> Result<Payment> {
            Ok(Payment { id: 7 })
        }

        #[step(name = "fail")]
        async fn fail(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            Err(SIMULATED.into())
        }

        async fn refund(&self, _: &mut Scope<'_>, _: &Root, paid: &Payment, why: &Failure) -> Result<()> {
            assert_eq!(why.message, SIMULATED.to_string());
            self.undone.0.lock().expect("no thread panicked").push(paid.id);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_value_is_there_for_the_compensation() -> Result<()> {
        let db = Database::new().await;
        let undone: &'static Undone = Box::leak(Box::default());
        let scoop = db.start((Checkout { undone },)).await?;
        assert!(matches!(scoop.launch(Root).await?.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(*undone.0.lock().expect("no thread panicked"), [7]);
        Ok(())
    }
}

mod to_a_finished_childs_compensation {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => launches(Child);
        step "1" one => fails(SIMULATED);
    }

    #[derive(Default)]
    struct ChildHandler;

    /// Goes around twice, so that each step has two instances with a value each.
    #[saga(name = "child-handler")]
    #[subscribes(Child)]
    impl ChildHandler {
        #[step(rollback = refund)]
        async fn charge(&self, scope: &mut Scope<'_>, _: &Child) -> Result<Payment> {
            let sql = "INSERT INTO log (text) VALUES ('charge') RETURNING id";
            let id: i32 = sqlx::query_scalar(sql).fetch_one(scope.tx().await?).await?;
            Ok(Payment { id: id.try_into()? })
        }

        #[step(rollback = unpack)]
        async fn pack(&self, _: &mut Scope<'_>, _: &Child, paid: &Payment) -> Result<Parcels> {
            Ok(Parcels(vec![format!("parcel of {}", paid.id)]))
        }

        #[step]
        async fn again(
            &self,
            _: &mut Scope<'_>,
            _: &Child,
            paid: &Payment,
        ) -> Result<Next<ChildHandlerStep>> {
            Ok(if paid.id == 1 { Next::goto(ChildHandlerStep::Charge) } else { Next::Continue })
        }

        async fn refund(&self, scope: &mut Scope<'_>, _: &Child, paid: &Payment, _: &Failure) -> Result<()> {
            log(scope, format!("refund {}", paid.id)).await
        }

        async fn unpack(
            &self,
            scope: &mut Scope<'_>,
            _: &Child,
            parcels: &Parcels,
            paid: &Payment,
            _: &Failure,
        ) -> Result<()> {
            log(scope, format!("unpack {:?} of {}", parcels.0, paid.id)).await
        }
    }

    async fn log(scope: &mut Scope<'_>, text: String) -> Result<()> {
        let sql = "INSERT INTO log (text) VALUES ($1)";
        sqlx::query(sql).bind(text).execute(scope.tx().await?).await?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_compensation_of_a_finished_child_gets_the_values_of_its_instance() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE log (id serial, text text)").await;
        let scoop = db.start((RootHandler, ChildHandler)).await?;
        assert!(matches!(scoop.launch(Root).await?.ends().await?, Outcome::RolledBack(_)));
        let undone = db.texts("SELECT text FROM log WHERE text <> 'charge' ORDER BY id").await;
        let expected =
            [r#"unpack ["parcel of 2"] of 2"#, "refund 2", r#"unpack ["parcel of 1"] of 1"#, "refund 1"];
        assert_eq!(undone, expected);
        Ok(())
    }
}

mod skipped {
    use super::*;

    #[derive(Default)]
    struct Checkout;

    #[saga]
    #[subscribes(Root)]
    impl Checkout {
        #[step]
        async fn begin(&self, _: &mut Scope<'_>, _: &Root) -> Result<Next<CheckoutStep>> {
            Ok(Next::goto(CheckoutStep::Ship))
        }

        #[step]
        async fn charge(&self, _: &mut Scope<'_>, _: &Root) -> Result<Payment> {
            Ok(Payment { id: 7 })
        }

        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &Root, paid: &Payment) -> Result<()> {
            panic!("there is no payment, not even {}", paid.id);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_value_of_a_skipped_step_is_missed_by_name() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Checkout,)).await?;
        let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else {
            panic!("it did not fail");
        };
        assert!(failure.message.starts_with("step `charge` has not returned anything"), "{failure}");
        Ok(())
    }
}
