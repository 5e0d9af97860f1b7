//! The code that the attributes generate, formatted. `UPDATE_EXPECT=1` updates it.

use expect_test::{expect, expect_file};
use proc_macro2::TokenStream;
use quote::quote;

fn pretty(tokens: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(tokens).expect("what is generated is Rust"))
}

#[test]
fn a_saga_of_two_steps() {
    let item = quote! {
        #[subscribes(OrderPlaced)]
        impl Checkout {
            #[step(rollback = refund)]
            async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
                self.payments.charge(order, scope.idempotency_key()).await
            }

            async fn refund(&self, _: &mut Scope<'_>, _: &OrderPlaced, paid: &Payment, _: &Failure) -> Result<()> {
                self.payments.refund(paid).await
            }

            #[step]
            async fn ship(&self, scope: &mut Scope<'_>, _: &OrderPlaced, paid: &Payment) -> Result<()> {
                scope.launch(Ship(paid.id)).await
            }
        }
    };
    let expansion = crate::saga::saga(TokenStream::new(), item);
    expect_file!["snapshot/two_steps.rs"].assert_eq(&pretty(expansion));
}

#[test]
fn a_step_that_waits_sleeps_tries_again_and_cleans_up() {
    let item = quote! {
        #[subscribes(OrderPlaced)]
        impl Checkout {
            #[step(finally = close, rollback = refund, sleep = "2 days", timeout = "30s", launches(Parcel))]
            async fn charge(&self, scope: &mut Scope<'_>, _: &OrderPlaced) -> Result<Payment> {}

            #[step(
                at = opening,
                finally = close,
                retry(max = 5, backoff = "100ms..30s", jitter = 0.5, when = is_transient)
            )]
            async fn ship(&self, scope: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {}

            #[step(rollback = refund, rollback_retry(max = 9, when = scoop::Error::is_permanent))]
            async fn thank(
                &self,
                scope: &mut Scope<'_>,
                _: &OrderPlaced,
                thanked: Option<&Thanks>,
            ) -> Result<With<CheckoutStep, Thanks>> {}

            async fn opening(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: &Payment) -> Result<SystemTime> {}

            async fn close(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: Option<&Payment>) -> Result<()> {}

            async fn refund(
                &self,
                _: &mut Scope<'_>,
                _: &OrderPlaced,
                paid: &Payment,
                _: &Failure,
            ) -> Result<()> {}

            fn is_transient(error: &Error) -> bool {}
        }
    };
    let expansion = crate::saga::saga(TokenStream::new(), item);
    let generated: syn::File = syn::parse2(expansion).unwrap();
    let generated = generated.items.into_iter().skip(2); // The user's own block, and the imports.
    expect_file!["snapshot/all_settings.rs"].assert_eq(&pretty(quote!(#(#generated)*)));
}

#[test]
fn a_message() {
    let expansion = crate::message::derive(quote!(
        struct OrderPlaced(u32);
    ));
    expect![[r#"
        impl ::scoop::Message for OrderPlaced {
            const TOPIC: &'static str = "order-placed";
            type Reply = ();
        }
    "#]]
    .assert_eq(&pretty(expansion));
}

#[test]
fn a_message_that_is_answered() {
    let expansion = crate::message::derive(quote!(
        #[message(reply = HashMap<String, Quote>, topic = "quotes.wanted")]
        struct QuotesWanted;
    ));
    expect![[r#"
        impl ::scoop::Message for QuotesWanted {
            const TOPIC: &'static str = "quotes.wanted";
            type Reply = HashMap<String, Quote>;
        }
        impl ::scoop::HasReply for QuotesWanted {
            type Declared = HashMap<String, Quote>;
        }
    "#]]
    .assert_eq(&pretty(expansion));
}

#[test]
fn a_message_with_many_replies() {
    let expansion = crate::message::derive(quote!(
        #[message(replies = Quote)]
        struct OffersWanted;
    ));
    expect![[r#"
        impl ::scoop::Message for OffersWanted {
            const TOPIC: &'static str = "offers-wanted";
            type Reply = Quote;
            const MANY_REPLIES: bool = true;
        }
        impl ::scoop::HasReply for OffersWanted {
            type Declared = Quote;
        }
    "#]]
    .assert_eq(&pretty(expansion));
}

#[test]
fn an_element_of_the_context() {
    let expansion = crate::context::derive(quote!(
        enum TenantId {}
    ));
    expect![[r#"
        impl ::scoop::ContextKey for TenantId {
            const KEY: &'static str = "TenantId";
        }
        ::scoop::__private::inventory::submit! {
            ::scoop::__private::NamedType::context_key:: < TenantId > ()
        }
    "#]]
    .assert_eq(&pretty(expansion));
}

#[test]
fn a_saga_that_runs_by_itself() {
    let settings = quote!(cron = "0 3 * * *", zone = "Europe/Prague", missed = "skip");
    let item = quote! {
        #[subscribes(Tick)]
        impl NightlyReport {
            #[step]
            async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {}
        }
    };
    let expansion = pretty(crate::saga::saga(settings, item));
    let (start, end) = (expansion.find("const DEFINITION").unwrap(), expansion.find("fn invoke").unwrap());
    let lines: Vec<_> = expansion[start..end].lines().map(str::trim).collect();
    expect![[r#"
        const DEFINITION: ::scoop::Definition = ::scoop::Definition::new(
        "nightly-report",
        "ticks.nightly-report",
        const { &[::scoop::__private::StepDefinition::new("write")] },
        );
        const SCHEDULE: ::core::option::Option<::scoop::Schedule> = ::core::option::Option::Some(
        ::scoop::__private::scheduled::<
        Tick,
        >(
        ::scoop::Schedule::cron("0 3 * * *", "Europe/Prague")
        .missed(::scoop::Missed::Skip),
        ),
        );
    "#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn only_a_tick_without_a_schedule_is_asked_about() {
    let expansion = |message: TokenStream| {
        let item = quote! {
            #[subscribes(#message)]
            impl Report {
                #[step]
                async fn write(&self, _: &mut Scope<'_>, _: &#message) -> Result<()> {}
            }
        };
        crate::saga::saga(TokenStream::new(), item).to_string()
    };
    assert!(expansion(quote!(scoop::Tick)).contains("IS_USER_LAUNCHED"));
    assert!(!expansion(quote!(OrderPlaced)).contains("IS_USER_LAUNCHED"));
}

#[test]
fn half_written_code_is_passed_on() {
    let item = quote! {
        #[subscribes(OrderPlaced)]
        impl Checkout {
            #[step]
            async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
                scope.
            }
        }
    };
    let expansion = crate::saga::saga(TokenStream::new(), item).to_string();
    assert!(expansion.contains("{ scope . }"), "{expansion}");
    assert!(expansion.contains("CheckoutStep"), "{expansion}");
}

#[test]
fn shared_compensation_gets_the_value_of_its_step() {
    let item = quote! {
        #[subscribes(OrderPlaced)]
        impl Checkout {
            #[step(rollback = refund)]
            async fn charge(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<Payment> {}

            #[step(rollback = refund, name = "thank")]
            async fn tip(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<Payment> {}

            async fn refund(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: &Payment, _: &Failure) -> Result<()> {}
        }
    };
    let expansion = pretty(crate::saga::saga(TokenStream::new(), item));
    let values = expansion.lines().filter(|line| line.contains("let from_"));
    let values: Vec<_> = values.map(str::trim).collect();
    expect![[r#"
        let from_charge = stored::<Payment>().of(scope, "charge")?;
        let from_tip = stored::<Payment>().of(scope, "thank")?;"#]]
    .assert_eq(&values.join("\n"));
}
