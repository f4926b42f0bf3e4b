"""What a job from others may say."""
