variable "region" {
  description = "AWS region"
  type        = string
  default     = "eu-central-1"
}

variable "instance_type" {
  description = "An instance with NVIDIA GPUs: g6.xlarge has one L4, p5.48xlarge eight H100"
  type        = string
  default     = "g6.xlarge"
}

variable "subnet_id" {
  description = "Subnet of the instance; its routes reach PyPI and the model hub"
  type        = string
}

variable "client_cidrs" {
  description = "Addresses that may call the server; there is no default, so that nobody opens it by accident"
  type        = list(string)
  validation {
    condition     = !contains(var.client_cidrs, "0.0.0.0/0")
    error_message = "client_cidrs: expected addresses of clients, got the whole internet; put a load balancer with TLS before it"
  }
}

variable "model" {
  description = "Model: organisation/name on the Hugging Face hub"
  type        = string
  default     = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
}

variable "release" {
  description = "What pip installs: a version from PyPI, or the address of a wheel"
  type        = string
  default     = "tardigrade-serve==0.2.0"
}

variable "state_gib" {
  description = "Disk of journals and models, which outlives the instance"
  type        = number
  default     = 200
}
