"""An attention model that learns to travel, with loaders of its own."""

from rl4co.envs import TSPEnv
from rl4co.models import AttentionModel, AttentionModelPolicy


def model():
    env = TSPEnv(generator_params={"num_loc": 8})
    policy = AttentionModelPolicy(
        env_name=env.name, embed_dim=16, num_encoder_layers=1, num_heads=2, feedforward_hidden=16
    )
    return AttentionModel(
        env, policy, baseline="exponential", batch_size=8, train_data_size=160, val_data_size=16, test_data_size=16
    )
