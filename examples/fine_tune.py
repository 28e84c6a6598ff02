"""Take a policy to another task of the same spaces: a pendulum learned on Earth, tuned for the Moon."""

import gymnasium as gym

import minerva

settings = {"eval_episodes": 3, "eval_every": 2_048, "compile": "off"}
earth = minerva.train("ppo", "Pendulum-v1", total_steps=2_048, settings=settings)
moon = gym.make("Pendulum-v1", g=1.6)

# the policy and its normaliser alone; init_optimizer=True takes critic, moments and duals too
tuned = minerva.train("ppo", moon, total_steps=2_048, init_from=earth.folder, policy_lr=1e-4, seed=1, settings=settings)
print(f"on the Moon: {tuned.before:.1f} with the policy of the Earth, {tuned.after:.1f} after tuning")
print(minerva.load_policy(tuned.folder))  # says where it began
