"""The job: thin shells that read Kafka, feed the engines, carry out the effects and acknowledge last."""
