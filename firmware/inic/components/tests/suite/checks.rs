//! Recipes are valid, and their assemblies promise the recipe's properties.

use niclab_components::{Flow, Promises, Recipe};

#[test]
fn every_recipe_is_valid_and_keeps_its_promises() {
    for flow in Flow::ALL {
        for choices in 0..8 {
            let [finds_duplicates, controls_rate, mitigates] = [1, 2, 4].map(|bit| choices & bit != 0);
            let recipe = Recipe { flow, finds_duplicates, controls_rate, mitigates, depth: 1 };
            let checked = recipe.assembly().unwrap().check();
            let promises = checked.unwrap_or_else(|faults| panic!("{recipe:?}: {faults:?}")).promises();
            let is_in_order = !matches!(flow, Flow::Unreliable | Flow::Reliable);
            let expected = Promises {
                delivered: flow.is_reliable(),
                once: finds_duplicates && flow.is_reliable() || is_in_order,
                in_order: is_in_order,
            };
            assert_eq!(promises, expected, "{recipe:?}");
        }
    }
}
